package mongosim

// modifier is an update operator. Its function gets the value that is there, or missing{}, and returns
// the value to put there, or missing{} to leave nothing.
type modifier struct {
	name string
	// creates says whether the operator makes the documents on the way to its path.
	creates bool
	check   func(c *change) error
	compute func(m *modifiers, c *change, old any, at *moment) (value any, err error)
	// always: it counts as a change even if the value is the same.
	always bool
}

var modifierTable map[string]*modifier

// renameOperator puts a value at the new path; an $unset takes it from the old.
var renameOperator = &modifier{name: "$rename", creates: true, compute: computeRename}

func init() { // the table refers to functions that refer to it
	table := []*modifier{
		{name: "$set", creates: true, compute: computeSet},
		{name: "$setOnInsert", creates: true, compute: computeSet},
		{name: "$unset", compute: func(*modifiers, *change, any, *moment) (any, error) { return missing{}, nil }},
		renameOperator,
		{name: "$inc", creates: true, check: checkNumber("increment"), compute: computeInc},
		{name: "$mul", creates: true, check: checkNumber("multiply"), compute: computeMul},
		{name: "$min", creates: true, compute: computeExtreme(-1)},
		{name: "$max", creates: true, compute: computeExtreme(1)},
		{name: "$currentDate", creates: true, check: checkCurrentDate, compute: computeCurrentDate, always: true},
		{name: "$push", creates: true, check: checkPush, compute: computePush},
		{name: "$addToSet", creates: true, check: checkAddToSet, compute: computeAddToSet},
		{name: "$pop", check: checkPop, compute: computePop},
		{name: "$pull", check: checkPull, compute: computePull},
		{name: "$pullAll", check: checkPullAll, compute: computePull},
		{name: "$bit", creates: true, check: checkBit, compute: computeBit},
	}
	modifierTable = map[string]*modifier{}
	for _, m := range table {
		modifierTable[m.name] = m
	}
}
