// Package reports turns runs into something that people and machines read: a timeline in words, JSON, and the file from which
// a run is replayed.
package reports
