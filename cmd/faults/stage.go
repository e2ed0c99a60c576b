package main

import (
	"fmt"
	"os"
	"slices"
)

// stage is what a test is to the fake provider and to the lines to the
// database: they end with it. It is used by one goroutine, but for what they
// complain of.
type stage struct{ cleanups []func() }

// Helper implements [openaitest.T].
func (s *stage) Helper() {}

// Errorf implements [openaitest.T].
func (s *stage) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Fatal implements [storetest.T], for what cannot go wrong on loopback.
func (s *stage) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalf implements [openaitest.T].
func (s *stage) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Cleanup implements [storetest.T] and [openaitest.T].
func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// end does what was left to do, the last first.
func (s *stage) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
	s.cleanups = nil
}
