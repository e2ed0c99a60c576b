// Package yamlfile reads the YAML files that people write policies and
// configuration in. Everything in such a file has to be meant: unknown keys, keys
// that stand twice, anchors, aliases, tags and values of another type than
// expected are refused, all of them at once, each with its file, line and column
// and what was expected.
//
// [Parse] reads a file, [File.Decode] one of its values into a struct; what is
// wrong gathers in [Problems]. Files are bounded in size, depth and number of
// values.
package yamlfile
