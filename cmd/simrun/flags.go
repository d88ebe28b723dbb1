package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
)

// parseFlags parses the arguments of a command that takes nothing but flags.
func parseFlags(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, withAllowed(err, flags))
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: %s takes no arguments; got %q", errUsage, flags.Name(), flags.Args())
	}
	return nil
}

// wholeNumber defines a flag for a number within bounds.
func wholeNumber(flags *flag.FlagSet, name string, value *int, low, high int) {
	flags.Func(name, "", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return fmt.Errorf("allowed: a whole number from %d to %d", low, high)
		}
		*value = n
		return nil
	})
}

func seedNumber(flags *flag.FlagSet, value *uint64) {
	flags.Func("seed", "", func(text string) (err error) {
		if *value, err = strconv.ParseUint(text, 10, 64); err != nil {
			return errors.New("allowed: a whole number from 0 to 18446744073709551615")
		}
		return nil
	})
}

// switchFlag defines a flag that is on or off.
func switchFlag(flags *flag.FlagSet, name string, value *bool) {
	flags.BoolFunc(name, "", func(text string) (err error) {
		if *value, err = strconv.ParseBool(text); err != nil {
			return errors.New("allowed: true, false")
		}
		return nil
	})
}
