package event

// CleanWritten is the wall that encoded payloads go through.
var CleanWritten = cleanWritten
