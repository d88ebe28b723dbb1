// Package testserver starts real servers for tests, from Debian's packages, on the loopback interface and in a folder of their own.
//
// A server that is not installed makes a test skip, with words that name the package; with CI=true it makes the test fail, since
// there a skip would hide that nothing was checked.
package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// find returns the path of a program, or skips or fails the test.
func find(t testing.TB, program, debianPackage string, folders ...string) string {
	t.Helper()
	for _, folder := range folders {
		matches, _ := filepath.Glob(filepath.Join(folder, program))
		if len(matches) > 0 {
			return matches[len(matches)-1]
		}
	}
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	message := fmt.Sprintf("%s is not installed: apt-get install %s", program, debianPackage)
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// freePort returns a port that nobody listened on a moment ago.
func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// run starts the server, waits until it has printed that it is ready, and stops it at the end of the test.
func run(t testing.TB, command *exec.Cmd, ready string) {
	t.Helper()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan struct{})
	var log strings.Builder
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for waiting := true; lines.Scan(); {
			if !waiting {
				continue
			}
			fmt.Fprintln(&log, lines.Text())
			if strings.Contains(lines.Text(), ready) {
				waiting = false
				close(started)
			}
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		<-ended
		_ = command.Wait()
	})
	select {
	case <-started:
	case <-ended:
		t.Fatalf("%s ended before it was ready:\n%s", filepath.Base(command.Path), log.String())
	}
}

// temporaryFolder is one that another user can be given, unlike those of testing.T.
func temporaryFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "fencepost-server-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}
