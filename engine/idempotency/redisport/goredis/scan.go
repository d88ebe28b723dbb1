package goredis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// position is a cursor: the master, the life of its process, and its own cursor. A SCAN cursor means something only to the process
// that gave it, since another one hashes its keys with another seed (Redis's documentation of SCAN, "Calling SCAN with a corrupted
// cursor"): it could skip keys.
type position struct {
	node, life string
	at         uint64
}

func (p position) String() string {
	return strings.Join([]string{p.node, p.life, strconv.FormatUint(p.at, 10)}, "|")
}

func parsePosition(cursor string) (position, error) {
	if cursor == "" {
		return position{}, nil
	}
	parts := strings.Split(cursor, "|")
	if len(parts) == 3 {
		if at, err := strconv.ParseUint(parts[2], 10, 64); err == nil {
			return position{parts[0], parts[1], at}, nil
		}
	}
	return position{}, fmt.Errorf("redis: the cursor %q is none of this adapter's", cursor)
}

type master struct {
	name   string
	client redis.Cmdable
}

// masters returns the servers that hold keys, in a fixed order.
func (a *Adapter) masters(ctx context.Context) (found []master, err error) {
	var mu sync.Mutex
	add := func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, master{c.Options().Addr, c})
		return nil
	}
	switch c := a.client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, add)
	case *redis.Ring:
		err = c.ForEachShard(ctx, add)
	default:
		return []master{{"", a.client}}, nil
	}
	slices.SortFunc(found, func(a, b master) int { return cmp.Compare(a.name, b.name) })
	return found, err
}

// Scan implements redisport.Port. Masters are walked one after the other.
func (a *Adapter) Scan(ctx context.Context, scan redisport.Scan) (page redisport.Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.options.CallTimeout)
	defer cancel()
	from, err := parsePosition(scan.Cursor)
	if err != nil {
		return page, err
	}
	nodes, err := a.masters(ctx)
	if err != nil {
		return page, err
	}
	i, same := slices.BinarySearchFunc(nodes, from.node, func(m master, name string) int { return cmp.Compare(m.name, name) })
	if i == len(nodes) { // the last master left the cluster
		return page, nil
	}
	if !same {
		from = position{node: nodes[i].name}
	}
	keys, next, err := scanNode(ctx, nodes[i].client, scan, from)
	if err != nil {
		return page, err
	}
	page.Keys = keys
	switch {
	case next.at != 0:
		page.Next = next.String()
	case i+1 < len(nodes):
		page.Next = position{node: nodes[i+1].name}.String()
	}
	return page, nil
}

// scanNode asks one server, in the same round trip, who it is. If it is not who it was, the walk over it begins anew.
func scanNode(ctx context.Context, client redis.Cmdable, scan redisport.Scan, from position) (keys []string, next position, err error) {
	var info *redis.StringCmd
	var step *redis.ScanCmd
	for range 2 {
		_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
			info = p.Info(ctx, "server")
			step = p.Scan(ctx, from.at, scan.Prefix+"*", int64(scan.Count))
			return nil
		})
		if err != nil {
			return nil, next, err
		}
		life := field(info.Val(), "run_id")
		if from.at == 0 || life == from.life {
			keys, at := step.Val()
			return keys, position{from.node, life, at}, nil
		}
		from.at = 0
	}
	return nil, next, fmt.Errorf("redis: the server was replaced during a scan")
}
