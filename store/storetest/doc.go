// Package storetest gives each test a database of its own.
//
// A test binary starts one private Postgres, at the first call of [New]. It
// migrates one database there, and every other one is a copy of it. When a
// test ends, its database is checked: the projections must be what the log
// folds to. When the binary ends, and also when only its parent does (a killed
// `go test` does not take its children along), the Postgres is gone.
//
// Every package that uses it has
//
//	func TestMain(m *testing.M) { storetest.Main(m) }
package storetest
