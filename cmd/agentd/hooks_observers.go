package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// listedObservers are the observers as they are stored: at the place where one may
// stop an answer, and then where it is told of the end.
func (c *configured) listedObservers() (out []listedHook) {
	for i, r := range c.observers.Hooks() {
		i %= len(c.observed)
		out = append(out, listedHook{Position: i + 1, Registration: r, Defined: c.observed[i].place})
	}
	return out
}

func printObservers(out io.Writer, list []observerEntry) error {
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "#\tOBSERVER\tCALLS\tON STOP\tON FAILURE\tREDACTS\tONLY\tDEFINED")
	for i, o := range list {
		id := oneLine(o.ID, 80)
		if o.Version != "" {
			id += "@" + oneLine(o.Version, 20)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, id, orElse(string(o.Class), string(stream.ClassMain)), orElse(string(o.OnStop), string(stream.StopEndTurn)),
			failurePolicy(o.Registration), yesNo(o.Redacting), scopeText(hooks.GateOnChunk, o.Only), oneLine(o.place, 200))
	}
	return t.Flush()
}

// failurePolicy is the one that holds.
func failurePolicy(r stream.Registration) stream.FailurePolicy {
	if r.Redacting {
		return stream.FailStop
	}
	return cmp.Or(r.OnFailure, stream.FailDetach)
}
