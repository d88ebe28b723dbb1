// Package defect names bugs that are planted into the engine, or its store, to prove that the properties find them, where
// changing the commands that the engine sends is not enough. Only a simulated host carries defects; production has none.
package defect

import "slices"

// Defect is a planted bug.
type Defect string

// The planted bugs.
const (
	// StartUnchecked starts a handler without a last look at the lease (upstream weakness W7).
	StartUnchecked Defect = "start-unchecked"
	// SlotAfterClaim takes the concurrency slot only after the claim was answered (upstream bug F10).
	SlotAfterClaim Defect = "slot-after-claim"
	// NoRotation walks the topics always in the same order (upstream bug F12).
	NoRotation Defect = "no-rotation"
	// CloseWithoutDrain lets Close return while handlers run.
	CloseWithoutDrain Defect = "close-without-drain"
	// CloseStopsHeartbeat lets leases run out as soon as closing begins (upstream bug F8).
	CloseStopsHeartbeat Defect = "close-stops-heartbeat"
	// RetentionSwapped dates the delivery before its attempts.
	RetentionSwapped Defect = "retention-swapped"
	// NoHorizon moves the cursor to the newest event that was seen (upstream weakness W1).
	NoHorizon Defect = "no-horizon"
	// ScanAgeIgnored takes a scan for as new as the lease that was taken after it.
	ScanAgeIgnored Defect = "scan-age-ignored"
	// CursorFirst advances the cursor before the events are materialized.
	CursorFirst Defect = "cursor-first"
	// DateEarly gives a delivery its expiry date before the cursor has passed its event.
	DateEarly Defect = "date-early"
	// GiveUpEarly ends a delivery one attempt before its retries are used up.
	GiveUpEarly Defect = "give-up-early"
	// BlameHandler records the failure of a handler that was stopped because its lease seemed lost as its own.
	BlameHandler Defect = "blame-handler"
	// NoPause tries again at once after an error.
	NoPause Defect = "no-pause"
	// SharedRotation lets the loops share one rotation of the topics.
	SharedRotation Defect = "shared-rotation"
	// OneTimer keeps the earliest date at which a retry falls due, and forgets the others.
	OneTimer Defect = "one-timer"
	// SkippedForgotten does not come back to a topic that a worker passed over because it had no free slot.
	SkippedForgotten Defect = "skipped-forgotten"
	// OldOrderLease goes on under an ordering lease however little of it is left.
	OldOrderLease Defect = "old-order-lease"
	// NoUrgentLook looks back once in a poll interval, also in ordered topics.
	NoUrgentLook Defect = "no-urgent-look"
	// CloseLeavesOne lets Close return while one task still goes on.
	CloseLeavesOne Defect = "close-leaves-one"
	// TicketForgets takes a claim that found nothing as proof that nothing has become claimable meanwhile.
	TicketForgets Defect = "ticket-forgets"
	// WriteConcernOne is content when the primary has a write, where engine/store/mongostore demands a majority (upstream weakness W10). It is the
	// simulated store that has it, on the shortest way to the model.
	WriteConcernOne Defect = "write-concern-one"
	// NoMargin believes in a lease until its very end by the worker's own clock.
	NoMargin Defect = "no-margin"
	// LossByError takes a handler's error for a lost lease if it says so (upstream weakness W13).
	LossByError Defect = "loss-by-error"
	// RetryAtMostOnce retries lost workers under at-most-once, too.
	RetryAtMostOnce Defect = "retry-at-most-once"
)

// Set is what is planted at once.
type Set []Defect

// Has tells whether the defect is planted.
func (s Set) Has(d Defect) bool { return slices.Contains(s, d) }

// Of returns what a host carries; nothing for hosts of production.
func Of(host any) Set {
	if carrier, ok := host.(interface{ Defects() Set }); ok {
		return carrier.Defects()
	}
	return nil
}
