// Package explore searches for runs that violate a property, and makes what it finds small.
//
// There are four strategies. [Exhaustive] puts a crash at every point and position that a run comes to, then every second crash that can follow, and
// tries every order of tasks up to a bound. [Random] draws loads, faults and orders, and in each run forbids some of the faults
// altogether (swarm testing). [Priorities] is Random with a scheduler that has a stated chance of finding a bug. [Coverage] keeps the plans that led
// somewhere new and changes them.
//
// Exploring uses all cores: a run is one world on one of them. What a strategy visits depends on its options alone, not on
// the number of cores, unless a budget of time cuts it short.
package explore
