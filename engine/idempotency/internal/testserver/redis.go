package testserver

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis starts a server without persistence and returns its address. Further arguments are the server's.
func Redis(t testing.TB, args ...string) (address string) {
	t.Helper()
	program, port := find(t, "redis-server", "redis-server"), freePort(t)
	command := exec.Command(program, append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", temporaryFolder(t),
	}, args...)...)
	run(t, command, "Ready to accept connections")
	return net.JoinHostPort("127.0.0.1", port)
}

// RedisClient connects to the address, as a client of the guards must: with deadlines.
func RedisClient(t testing.TB, address string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Pass returns when the server's clock has moved on by the duration. It asks again and again instead of sleeping, since
// only the server's clock counts.
func Pass(t testing.TB, client *redis.Client, span time.Duration) {
	t.Helper()
	now := func() time.Time {
		at, err := client.Time(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for until := now().Add(span); now().Before(until); {
	}
}
