package hooks

import (
	"path"
	"strings"
)

// MatchName reports whether a glob in the syntax of [path.Match] matches the name
// of a tool, an agent or a tenant. Names are no paths: a * matches a slash as it
// does any other character, or a tool called crm/delete would not be one of those
// that * denies. The error is that of a glob that is not well-formed.
func MatchName(glob, name string) (bool, error) {
	return path.Match(plain.Replace(glob), plain.Replace(name))
}

// plain puts a character that names never have in the place of the slash.
var plain = strings.NewReplacer("/", "\x00")
