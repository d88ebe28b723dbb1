package idempotency_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func dependencies(t *testing.T, packages ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-deps"}, packages...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

func TestR15TheRootPullsInNoServerDriverOrSubPackage(t *testing.T) {
	for _, imported := range dependencies(t, ".") {
		for _, unwanted := range []string{"github.com/jackc", "github.com/redis", "net/http", "github.com/go-chi"} {
			if strings.HasPrefix(imported, unwanted) {
				t.Errorf("the root imports %s", imported)
			}
		}
		if imported == "google.golang.org/grpc" || strings.Contains(imported, "/engine/idempotency/") {
			t.Errorf("the root imports %s", imported)
		}
	}
}

func TestR14NoMiddlewareUsesTheUnframedKey(t *testing.T) {
	for _, folder := range []string{"httpidem", "grpcidem"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "ComputeKey") && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s uses ComputeKey", file)
			}
		}
	}
}
