package properties

import (
	"strings"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

var truth = Property{
	ID: "I14", Name: "truth",
	Statement: "The recorded outcome of an attempt is what its handler did; a delivery ends as its last attempt did, and as an error only when no attempt is left. Nobody loses a lease without cause, and where nothing goes wrong nothing is reported as an error.",
	New:       func() Checker { return &honest{} },
}

type honest struct {
	reported []*journal.Event
	troubled bool // a process died, or a change stream broke
}

func (h *honest) Observe(s *State, event *journal.Event) {
	switch event.Kind {
	case journal.ErrorReported:
		h.reported = append(h.reported, event)
	case journal.ProcessDied, journal.StreamFailed:
		h.troubled = true
	}
	if event.Kind == journal.HandlerCancelled && strings.Contains(event.Error, "lease lost") && s.Forced == 0 && !s.Struck(event.Process) {
		s.Violate("the handler of attempt %d of delivery %s is told that its lease is lost; %s lives and nothing was done to it",
			event.Number, event.Delivery, s.Journal.ProcessName(event.Process))
	}
	if c := s.Attempt; c != nil && c.Before != nil && c.Before.Status == "pending" && c.After.Status != "pending" {
		checkAttempt(s, c.After, event)
	}
	if c := s.Delivery; c != nil && c.Before != nil && !c.Before.Terminal() && c.After.Terminal() {
		checkDelivery(s, c.After)
	}
}

func checkAttempt(s *State, attempt *Attempt, event *journal.Event) {
	if attempt.Token != "" && attempt.Took != attempt.EndedAt-attempt.StartedAt {
		s.Violate("attempt %d of delivery %s is recorded to have taken %v; it took %v",
			attempt.Number, attempt.DeliveryID, attempt.Took, attempt.EndedAt-attempt.StartedAt)
	}
	var last *Handler
	for _, h := range s.Handlers {
		if h.DeliveryID == attempt.DeliveryID && h.Number == attempt.Number {
			last = h
		}
	}
	switch {
	case attempt.Status == "success":
		if last == nil || !last.Returned || last.Error != "" {
			s.Violate("attempt %d of delivery %s is recorded as a success; its handler did not succeed", attempt.Number, attempt.DeliveryID)
		}
	case attempt.Code == "handler_error":
		if last == nil || !last.Returned || last.Error == "" {
			s.Violate("attempt %d of delivery %s is recorded as the handler's error; its handler did not fail", attempt.Number, attempt.DeliveryID)
		} else if last.Cancelled {
			s.Violate("attempt %d of delivery %s is recorded as the handler's error; it failed after its context was cancelled", attempt.Number, attempt.DeliveryID)
		}
	case attempt.Code == "worker_lost":
		holder := s.Claimer(attempt.Token)
		gaveUp := holder.Process == event.Process && holder.Task == event.Task
		if gaveUp && (last == nil || !last.Cancelled || last.Error == "") {
			s.Violate("attempt %d of delivery %s is given up by %s, whose handler was not stopped or succeeded",
				attempt.Number, attempt.DeliveryID, s.Journal.ProcessName(holder.Process))
		}
		if s.Forced == 0 && !s.Struck(holder.Process) && s.Life(holder.Process) == holder.Life {
			s.Violate("attempt %d of delivery %s is recorded as lost; %s lives and nothing was done to it",
				attempt.Number, attempt.DeliveryID, s.Journal.ProcessName(holder.Process))
		}
	case attempt.Code == "event_expired":
		if stored := s.EventOf(attempt.EventID); stored != nil && !stored.Gone {
			s.Violate("attempt %d of delivery %s is recorded as expired; the event %s is there", attempt.Number, attempt.DeliveryID, attempt.EventID)
		}
		if last != nil {
			s.Violate("attempt %d of delivery %s is recorded as expired; its handler ran", attempt.Number, attempt.DeliveryID)
		}
	case leftover(attempt):
		if delivery := s.DeliveryOf(attempt.DeliveryID); delivery != nil && !delivery.Gone && !delivery.Terminal() {
			s.Violate("attempt %d of delivery %s is recorded as left over; the delivery is pending", attempt.Number, attempt.DeliveryID)
		}
	case attempt.Code == "":
		s.Violate("attempt %d of delivery %s failed without a code", attempt.Number, attempt.DeliveryID)
	}
}

func checkDelivery(s *State, delivery *Delivery) {
	attempts := s.AttemptsOf(delivery.ID)
	if len(attempts) == 0 {
		s.Violate("delivery %s ends as %s without an attempt", delivery.ID, delivery.Status)
		return
	}
	last := attempts[len(attempts)-1]
	if last.Status != delivery.Status {
		s.Violate("delivery %s ends as %s; its last attempt is %s", delivery.ID, delivery.Status, last.Status)
	}
	subscription := s.SubscriptionOf(delivery.Group, delivery.Topic)
	if delivery.Status != "error" || subscription == nil || subscription.AtMostOnce || last.Code == "event_expired" {
		return
	}
	if last.Number <= subscription.MaxRetries {
		s.Violate("delivery %s ends as error after attempt %d; %d retries are allowed", delivery.ID, last.Number, subscription.MaxRetries)
	}
}

func (h *honest) Finish(s *State) {
	if len(s.struck) > 0 || s.Forced > 0 || h.troubled {
		return
	}
	for _, event := range h.reported {
		s.Violate("%s reports an error at step %d, and nothing went wrong: %s", s.Journal.ProcessName(event.Process), event.Step, event.Error)
	}
}
