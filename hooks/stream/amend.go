package stream

// amends takes in that the observer puts to in the place of c.
func (w *watcher) amends(c, to *Chunk) *Failure {
	made, problem := w.amended(c, to)
	if problem != "" {
		return failf(outcomeMalformed, "it amended what it must not: %s", problem)
	}
	if h := w.held.find(refOf(c)); h != nil {
		if made.Text != "" || made.Kind != c.Kind && made.Kind == KindToolCall {
			w.held.release(h.blockRef)
		} else if f := w.overdue(h, c.At); f != nil {
			return f
		}
	}
	w.report.Amended++
	if made != *c {
		w.lanes.add(c.Lane)
		w.lanes.add(made.Lane)
	}
	*c = made
	return nil
}

// amended is the chunk that goes on if an observer puts to in the place of c, or
// why it must not. Fields of to that do not go with its kind are left out.
func (w *watcher) amended(c, to *Chunk) (Chunk, string) {
	next := Chunk{Kind: to.Kind, Lane: c.Lane, BlockID: c.BlockID, Text: to.Text, At: c.At}
	switch c.Kind {
	case KindDelta, KindEnd:
		switch to.Kind {
		case KindDelta:
			return w.moved(next, c, to)
		case KindToolCall:
			return w.call(next, c, to)
		case KindFinish, KindEnd:
		}
		return next, "a text became an end"
	case KindToolCall:
		if to.Kind != KindToolCall || to.BlockID != c.BlockID || to.Call.Name == "" {
			return next, "a tool call has to stay one with a name, in its block"
		}
		next.Call = to.Call
		return next, ""
	case KindFinish:
		next = *c
		next.Finish.Reason = to.Finish.Reason
		if to.Kind != KindFinish || to.Text != "" || to.Finish != next.Finish {
			return next, "of a finish only the reason can be changed"
		}
		switch to.Finish.Reason {
		case FinishStop, FinishLength, FinishToolCalls, FinishContentFilter, FinishUnknown:
			return next, ""
		}
		return next, "that is no finish reason"
	}
	return next, "there is no such chunk"
}

// moved is a delta in the block that the observer wants it in.
func (w *watcher) moved(next Chunk, c, to *Chunk) (Chunk, string) {
	switch {
	case to.Lane != c.Lane:
		return next, "a delta has to stay in its lane"
	case to.BlockID == c.BlockID:
		return next, ""
	case c.Lane == LaneToolArguments:
		return next, "arguments have to stay in their block"
	case to.BlockID == "":
		return next, "a block needs an id"
	}
	name, _ := w.ownName(blockRef{to.Lane, to.BlockID})
	if name == "" {
		return next, "too many blocks of its own"
	}
	next.BlockID = name
	return next, ""
}

// call is a tool call that the observer made of a text.
func (w *watcher) call(next Chunk, c, to *Chunk) (Chunk, string) {
	switch {
	case c.Lane != LaneText:
		return next, "only text can become a tool call"
	case to.Call.Name == "" || to.BlockID == "":
		return next, "a tool call needs a name and a block"
	}
	name, fresh := w.ownName(blockRef{LaneToolArguments, to.BlockID})
	if !fresh {
		return next, "a tool call needs a block of its own"
	}
	w.called = true
	next.Lane, next.BlockID, next.Call = LaneToolArguments, name, to.Call
	return next, ""
}
