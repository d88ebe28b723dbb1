package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// postgresFolders are where Debian's packages put the server's programs, which are not on PATH.
const postgresFolders = "/usr/lib/postgresql/*/bin"

// Postgres starts a server with an empty database and returns its connection string. The server refuses to run as root, so root starts it as
// the user postgres. Further arguments are the server's.
func Postgres(t testing.TB, args ...string) (connection string) {
	t.Helper()
	folder, port := temporaryFolder(t), freePort(t)
	data := filepath.Join(folder, "data")
	initdb := exec.Command(find(t, "initdb", "postgresql", postgresFolders), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
	asPostgres(t, folder, initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := exec.Command(find(t, "postgres", "postgresql", postgresFolders), append([]string{
		"-D", data, "-p", port, "-k", folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "deadlock_timeout=50ms",
	}, args...)...)
	asPostgres(t, folder, server)
	run(t, server, "database system is ready to accept connections")
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", port)
}

// asPostgres lets a command run as the user postgres, in a folder of that user's, if this process is root.
func asPostgres(t testing.TB, folder string, command *exec.Cmd) {
	t.Helper()
	command.Dir = folder
	if os.Geteuid() != 0 {
		return
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Fatalf("PostgreSQL does not run as root: %v", err)
	}
	uid, _ := strconv.Atoi(account.Uid) // numbers, on every system that has this user
	gid, _ := strconv.Atoi(account.Gid)
	if err := os.Chown(folder, uid, gid); err != nil {
		t.Fatal(err)
	}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
