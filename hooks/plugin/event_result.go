package plugin

import "github.com/seed-2ca4966b/agentd/hooks"

type inputChanges struct {
	Text  *string `json:"text"`
	Reply string  `json:"reply"`
}

func inputResult(a hooks.Action, r hooks.Reason, c inputChanges) hooks.BeforeInputResult {
	return hooks.BeforeInputResult{Action: a, Reason: r, Text: c.Text, Reply: c.Reply}
}

type runStartChanges struct {
	System *string               `json:"system"`
	Append []hooks.HiddenMessage `json:"append"`
	Tools  *[]string             `json:"tools"`
}

func runStartResult(a hooks.Action, r hooks.Reason, c runStartChanges) hooks.BeforeRunStartResult {
	return hooks.BeforeRunStartResult{Action: a, Reason: r, System: c.System, Append: c.Append, Tools: c.Tools}
}

type contextChanges struct {
	Messages *[]hooks.Message `json:"messages"`
}

func contextResult(a hooks.Action, r hooks.Reason, c contextChanges) hooks.TransformContextResult {
	return hooks.TransformContextResult{Action: a, Reason: r, Messages: c.Messages}
}

type headersChanges struct {
	Set    []hooks.Header `json:"set"`
	Remove []string       `json:"remove"`
}

func headersResult(a hooks.Action, r hooks.Reason, c headersChanges) hooks.BeforeProviderHeadersResult {
	return hooks.BeforeProviderHeadersResult{Action: a, Reason: r, Set: c.Set, Remove: c.Remove}
}

type requestChanges struct {
	Body *string `json:"body"`
}

func requestResult(a hooks.Action, r hooks.Reason, c requestChanges) hooks.BeforeProviderRequestResult {
	return hooks.BeforeProviderRequestResult{Action: a, Reason: r, Body: c.Body}
}

func responseResult(a hooks.Action, r hooks.Reason, _ struct{}) hooks.AfterProviderResponseResult {
	return hooks.AfterProviderResponseResult{Action: a, Reason: r}
}

type callChanges struct {
	Arguments *string `json:"arguments"`
}

func callResult(a hooks.Action, r hooks.Reason, c callChanges) hooks.BeforeToolCallResult {
	return hooks.BeforeToolCallResult{Action: a, Reason: r, Arguments: c.Arguments}
}

func executeResult(a hooks.Action, r hooks.Reason, _ struct{}) hooks.BeforeExecuteResult {
	return hooks.BeforeExecuteResult{Action: a, Reason: r}
}

type outputChanges struct {
	Content *string `json:"content"`
	IsError *bool   `json:"is_error"`
}

func outputResult(a hooks.Action, r hooks.Reason, c outputChanges) hooks.AfterToolCallResult {
	return hooks.AfterToolCallResult{Action: a, Reason: r, Content: c.Content, IsError: c.IsError}
}
