package hooks

import "regexp"

// NameRule says what [ValidName] wants, for the error of whoever refuses another.
const NameRule = "must have 1 to 64 lower-case letters, digits, dots, dashes and underscores, with a letter or a digit at both ends"

var validName = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$`)

// ValidName reports whether an observer, a lifecycle plugin or a channel may have
// that name. They stand in logs, labels and queries as they are.
func ValidName(name string) bool { return validName.MatchString(name) }
