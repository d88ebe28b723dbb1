package engine

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// deepest is how many frames of a panic's stack are looked at.
const deepest = 64

// panicStack describes where the panic that is being recovered came from, down to the call of the handler: a package, file and line for
// each frame. It says nothing that differs from run to run, from machine to machine or from build to build (addresses, goroutine
// numbers, folders, the names of closures), since it is stored, and equal runs must store equal documents.
func panicStack() string {
	var counters [deepest]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(0, counters[:])])
	var b strings.Builder
	inside := false
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			inside = true
			b.Reset() // of a panic within a panic, the inner one
		case inside && strings.HasSuffix(frame.Function, "/engine.guard"):
			return b.String()
		case inside:
			fmt.Fprintf(&b, "%s/%s:%d\n", packageOf(frame.Function), filepath.Base(frame.File), frame.Line)
		}
		if !more {
			return b.String()
		}
	}
}

// packageOf cuts a function's name down to the path of its package.
func packageOf(function string) string {
	last := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[last:], ".")
	return function[:last] + name
}
