package rules

import (
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// What a set of rules may have. What is over is an error of [Load].
const (
	// MaxFiles is how many files a set may have.
	MaxFiles = 100
	// MaxFileBytes is how long a file may be.
	MaxFileBytes = yamlfile.MaxBytes
	// MaxRules is how many rules a set may have.
	MaxRules = 500
	// MaxErrors is how many errors are told of what is wrong with a set.
	MaxErrors = yamlfile.MaxErrors
	// MaxExpressionBytes is how long one CEL expression may be.
	MaxExpressionBytes = 4096
	// MaxTimeLimit is the longest timeout of a rule.
	MaxTimeLimit = 30 * time.Second
)

const (
	maxExpressions = 64  // of one rule
	maxWithBytes   = 256 // what stands in the place of a pattern
	maxPatterns    = 32
	minTimeLimit   = time.Millisecond

	maxExpressionNesting = 40
	maxExpressionNodes   = 2_000 // after macros were expanded
	maxComprehensions    = 3     // one inside the other

	// maxCost is what one expression may cost: a unit is about the work of one
	// comparison, or of ten bytes that are read. The whole of it takes well under
	// a second.
	maxCost = 5_000_000
	// maxValues bounds what one value of an expression takes: an element of a
	// list or map counts 1, and so do ten bytes of text.
	maxValues = 1 << 20
	// checkEvery is after how many steps of a loop the end of ctx is looked for.
	checkEvery = 64

	// maxInputBytes is how much text a rule looks at.
	maxInputBytes = 8 << 20
	// maxJSONNesting is how deep JSON may be that rules look into.
	maxJSONNesting = 100
	// maxJSONValues is how many values such JSON may have: each takes far more
	// memory than the two bytes that it can be written with.
	maxJSONValues = 200_000
	// maxReasonBytes is how long a reason is stored; the rest is cut off.
	maxReasonBytes = 4 << 10
	// maxOutputBytes is how much a text with expressions may come to.
	maxOutputBytes = 8 << 20
)

// The sizes for which the cost of an expression is estimated when it is loaded.
const (
	usualText = 16 << 10
	usualList = 100
	usualMap  = 50
	usualJSON = 100
)
