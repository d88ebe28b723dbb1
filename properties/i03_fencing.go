package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var fencing = Property{
	ID: "I3", Name: "fencing",
	Statement: "Only the holder of a lease renews it, gives it back, completes its attempt, starts its handler, or moves the cursor; only an expired lease is reaped, and the handler's context is cancelled before; a held one is not taken. Nobody writes what belongs to another group, or to a topic to which it has not subscribed.",
	New:       func() Checker { return fence{} },
}

type fence struct{}

func (fence) Observe(s *State, event *journal.Event) {
	checkMember(s, event)
	if event.Kind == journal.HandlerStarted {
		if h := s.Running(event); h != nil && !s.HoldsLease(h) {
			s.Violate("%s starts the handler of attempt %d of delivery %s without holding its lease",
				s.Journal.ProcessName(event.Process), h.Number, h.DeliveryID)
		}
		return
	}
	if c := s.Subscription; c != nil && c.Before != nil && event.Process != 0 {
		checkTopic(s, c, event)
	}
	if s.Attempt == nil || s.Attempt.Before == nil || s.Attempt.Before.Status != "pending" || event.Process == 0 {
		return // what the world itself does is a fault, not the engine's
	}
	before, now := s.Attempt.Before, s.Attempt.After
	if before.Token == "" {
		if now.Status != "pending" && !leftover(now) {
			s.Violate("%s completes attempt %d of delivery %s (%s), which nobody has leased",
				s.Journal.ProcessName(event.Process), now.Number, now.DeliveryID, event.Point)
		}
		return
	}
	holder, holds := s.Claimer(before.Token), s.holds(before.Token, event)
	writer := s.Journal.ProcessName(event.Process)
	switch {
	case now.Code == "worker_lost" && holds && holder.Task == event.Task:
		// The worker itself gave up; I14 checks that it had reason to.
	case now.Code == "worker_lost":
		checkCancelled(s, now)
		if before.LockedUntil > s.Now {
			s.Violate("%s reaps attempt %d of delivery %s, whose lease ends in %v", writer, now.Number, now.DeliveryID, before.LockedUntil-s.Now)
		}
	case now.Token != "" && now.Token != before.Token:
		s.Violate("%s takes attempt %d of delivery %s, which is locked", writer, now.Number, now.DeliveryID)
	case leftover(now) && before.LockedUntil <= s.Now:
		// Whoever claimed it is gone.
	case !holds:
		s.Violate("%s writes attempt %d of delivery %s (%s), whose lease is held by %s",
			writer, now.Number, now.DeliveryID, event.Point, s.Journal.ProcessName(holder.Process))
	case now.Status != "pending" && holder.Task != event.Task:
		s.Violate("task %d of %s completes attempt %d of delivery %s, which task %d claimed", event.Task, writer, now.Number, now.DeliveryID, holder.Task)
	}
}

// checkMember looks whether the writer has any business with what it writes.
func checkMember(s *State, event *journal.Event) {
	check := func(what, group, topic string) {
		if !s.Member(s.Author(event), group, topic) {
			s.Violate("%s writes %s of group %s (%s), to whose topic %s it has not subscribed",
				s.Journal.ProcessName(event.Process), what, group, event.Point, topic)
		}
	}
	switch {
	case event.Process == 0:
	case s.Delivery != nil:
		check("a delivery", s.Delivery.After.Group, s.Delivery.After.Topic)
	case s.Attempt != nil:
		check("an attempt", s.Attempt.After.Group, s.Attempt.After.Topic)
	case s.Subscription != nil:
		check("the subscription", s.Subscription.After.Group, "") // which comes to be before one has subscribed
	}
}

// checkTopic looks at the leases of a topic, and at its cursor.
func checkTopic(s *State, c *Change[Subscription], event *journal.Event) {
	writer := s.Journal.ProcessName(event.Process)
	for _, lease := range []struct {
		name        string
		before, now Lease
	}{
		{"ordering", c.Before.Order, c.After.Order},
		{"discovery", c.Before.Discovery, c.After.Discovery},
	} {
		taken := lease.now.Token != "" && lease.now.Token != lease.before.Token
		switch holds := s.holds(lease.before.Token, event); {
		case taken && lease.before.Until > s.Now:
			s.Violate("%s takes the %s lease of topic %s, which is held for another %v", writer, lease.name, c.After.Topic, lease.before.Until-s.Now)
		case !taken && lease.now != lease.before && !holds:
			s.Violate("%s renews or gives back the %s lease of topic %s (%s), which is not its own", writer, lease.name, c.After.Topic, event.Point)
		}
	}
	if c.After.Cursor != c.Before.Cursor && !s.holds(c.Before.Discovery.Token, event) {
		s.Violate("%s moves the cursor of topic %s without the discovery lease", writer, c.After.Topic)
	}
}

// holds tells whether the lease with the token belongs to the process, in the life, that did the event.
func (s *State) holds(token string, event *journal.Event) bool {
	holder, author := s.Claimer(token), s.Author(event)
	return token != "" && holder.Process == author.Process && holder.Life == author.Life
}

// checkCancelled looks at the handler of an attempt that is being taken from its worker: unless its process is frozen, or all were
// slow, it must have been told before.
func checkCancelled(s *State, attempt *Attempt) {
	for _, h := range s.Handlers {
		if !h.Ended && h.DeliveryID == attempt.DeliveryID && h.Number == attempt.Number && !h.Cancelled && !s.Frozen(h.Process) && s.Forced == 0 {
			s.Violate("attempt %d of delivery %s is taken from %s, whose handler runs and was not told",
				attempt.Number, attempt.DeliveryID, s.Journal.ProcessName(h.Process))
		}
	}
}

// leftover tells whether the attempt was ended because its delivery had ended or was gone; I14 checks that it was.
func leftover(attempt *Attempt) bool {
	return attempt.Code == "delivery_missing" || attempt.Code == "delivery_already_terminal"
}

func (fence) Finish(*State) {}
