// Package anthropictest is a fake of the Messages API for tests. It refuses
// with a 400 what a strict provider refuses, and more: two messages of one role
// in a row, which the API would join.
package anthropictest
