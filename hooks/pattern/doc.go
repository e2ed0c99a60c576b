// Package pattern finds texts by regular expressions (RE2) and puts others in
// their place, in whole texts and in texts that arrive in pieces.
//
// What is taken out is the union of what each pattern finds: from every place at
// which one can begin, as far as Go's regexp would go from there. It covers what
// [regexp.Regexp.FindAll] finds, which skips what overlaps, so neither the order
// of the patterns nor the places at which a text was split make a difference.
// Spans that overlap become one, with one replacement; a replacement is not
// looked at again.
//
// A [TextStream] gives out what no match can reach any more and holds back the
// rest, for as long as it could still become a match. A [JSONStream] does so in
// the texts, names and numbers inside JSON, whichever way they are written. A
// [Pass] is the same for what is there as a whole.
//
// [Lookup] has patterns for common secrets and personal data. They find what is
// well-formed, and whoever wants to get something through can write it in words.
package pattern
