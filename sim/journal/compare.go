package journal

import "fmt"

// Difference is the first place where two runs part ways. It is an error.
type Difference struct {
	Index int // of the event, from 0
	Step  int // of the event that was expected, or of the one that came instead
	Want  string
	Got   string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("the runs differ at step %d (event %d):\n  expected %s\n  got      %s", d.Step, d.Index+1, d.Want, d.Got)
}

// nothing stands for the event that one run has and the other has not.
const nothing = "(the end of the run)"

// Compare returns a *Difference naming the first step at which the run differs from the recorded lines, or nil.
func (j *Journal) Compare(lines []string) error {
	var line []byte
	for i := range j.Events {
		line = j.AppendLine(line[:0], &j.Events[i])
		if i >= len(lines) {
			return &Difference{i, j.Events[i].Step, nothing, string(line)}
		}
		if string(line) != lines[i] {
			return &Difference{i, j.Events[i].Step, lines[i], string(line)}
		}
	}
	if len(lines) > len(j.Events) {
		return &Difference{len(j.Events), j.Steps(), lines[len(j.Events)], nothing}
	}
	return nil
}

// Lines returns all events in their stable encoding.
func (j *Journal) Lines() []string {
	lines := make([]string, len(j.Events))
	for i := range j.Events {
		lines[i] = j.Line(&j.Events[i])
	}
	return lines
}
