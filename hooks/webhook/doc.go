// Package webhook makes one HTTP endpoint a policy: each decision of a gate is
// one signed POST, and what the endpoint answers is the hook's answer.
//
// Whatever is no complete and well-formed answer to exactly this question is the
// failure of the hook, and never an allow: see [hooks.FailurePolicy]. A question
// goes only to addresses that are public or that the operator has named, which
// is judged of the address that is dialled. docs/webhooks.md has the format.
//
// The signatures are those of Standard Webhooks (https://www.standardwebhooks.com)
// with HMAC-SHA256. It imports only hooks and the standard library.
package webhook
