package event

// ReplaceNUL is the wall that encoded payloads go through.
var ReplaceNUL = replaceNUL
