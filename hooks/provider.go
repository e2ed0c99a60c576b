package hooks

// BeforeProviderHeaders is what hooks see of the header of a provider's HTTP
// request, once per attempt of a model call. Models that speak no HTTP have no
// provider gates.
type BeforeProviderHeaders struct {
	RunRef
	Turn    int `json:"turn"`
	Attempt int `json:"attempt"`
	// Model is what the provider is asked for.
	Model string `json:"model"`
	// Headers are sorted by name, each name once. No credential is among them:
	// the adapter adds those below the gate.
	Headers []Header `json:"headers"`
}

// BeforeProviderHeadersResult takes continue, transform and block. Names that
// belong to the transport or carry credentials cannot be changed, and what
// would not be a header is refused: see [CheckHeader]. Values are never stored.
// So neither is what a hook says when it fails here, in an error or a panic,
// but for the code of a [Failure].
type BeforeProviderHeadersResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
	// Set replaces headers by name, or adds them. Of two with one name the last
	// holds. Spaces around a value are taken off.
	Set []Header
	// Remove names headers to leave out, before Set adds any. One that is not
	// there is left out already.
	Remove []string
}

// BeforeProviderHeadersFunc is a hook at this gate.
type BeforeProviderHeadersFunc = Func[BeforeProviderHeaders, BeforeProviderHeadersResult]

func (r BeforeProviderHeadersResult) answer() answer {
	a := answer{action: r.Action, reason: r.Reason, annotations: r.Annotations, changes: len(r.Set)+len(r.Remove) > 0}
	for _, h := range r.Set {
		a.size += elementSize + len(h.Name) + len(h.Value)
	}
	for _, name := range r.Remove {
		a.size += elementSize + len(name)
	}
	return a
}

func (BeforeProviderHeaders) gate() Gate                       { return GateBeforeProviderHeaders }
func (in BeforeProviderHeaders) about() subject                { return subjectOf(in.RunRef) }
func (in BeforeProviderHeaders) barred() BeforeProviderHeaders { return in }

func (in BeforeProviderHeaders) clone() BeforeProviderHeaders {
	in.Headers = append([]Header{}, in.Headers...)
	return in
}

func (in BeforeProviderHeaders) accept(out BeforeProviderHeadersResult) (BeforeProviderHeaders, []change, error) {
	headers, changes, err := changeHeaders(in.Headers, out.Set, out.Remove)
	if err != nil {
		return in, nil, err
	}
	in.Headers = headers
	return in, changes, nil
}

func (in BeforeProviderHeaders) merge(v Verdict[BeforeProviderHeaders]) BeforeProviderHeadersResult {
	out := BeforeProviderHeadersResult{Action: v.Action, Reason: v.Reason}
	if v.Action == ActionTransform {
		out.Set, out.Remove = headerDifference(in.Headers, v.Value.Headers)
	}
	return out
}

// BeforeProviderRequest is what hooks see of the body of a provider's HTTP
// request, once per attempt of a model call, after [BeforeProviderHeaders].
type BeforeProviderRequest struct {
	RunRef
	Turn    int    `json:"turn"`
	Attempt int    `json:"attempt"`
	Model   string `json:"model"`
	// Body is the JSON object that is about to be sent, byte for byte.
	Body string `json:"body"`
}

// BeforeProviderRequestResult takes continue, transform and block.
type BeforeProviderRequestResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
	// Body is sent instead, byte for byte: a JSON object in UTF-8 that has no
	// member twice. Nil leaves it.
	Body *string
}

// BeforeProviderRequestFunc is a hook at this gate.
type BeforeProviderRequestFunc = Func[BeforeProviderRequest, BeforeProviderRequestResult]

func (r BeforeProviderRequestResult) answer() answer {
	return answer{action: r.Action, reason: r.Reason, annotations: r.Annotations, changes: r.Body != nil, size: lenOf(r.Body)}
}

func (BeforeProviderRequest) gate() Gate                       { return GateBeforeProviderRequest }
func (in BeforeProviderRequest) about() subject                { return subjectOf(in.RunRef) }
func (in BeforeProviderRequest) clone() BeforeProviderRequest  { return in }
func (in BeforeProviderRequest) barred() BeforeProviderRequest { return in }

func (in BeforeProviderRequest) accept(out BeforeProviderRequestResult) (BeforeProviderRequest, []change, error) {
	changes, err := diffObjects("body", in.Body, *out.Body)
	if err != nil {
		return in, nil, err
	}
	in.Body = *out.Body
	return in, changes, nil
}

func (BeforeProviderRequest) merge(v Verdict[BeforeProviderRequest]) BeforeProviderRequestResult {
	out := BeforeProviderRequestResult{Action: v.Action, Reason: v.Reason}
	if v.Action == ActionTransform {
		out.Body = &v.Value.Body
	}
	return out
}

// AfterProviderResponse is what hooks see of a provider's answer once its
// status and header are there and before its body is read.
type AfterProviderResponse struct {
	RunRef
	Turn    int    `json:"turn"`
	Attempt int    `json:"attempt"`
	Model   string `json:"model"`
	// Status is the HTTP status. An answer that is a refusal comes here too.
	Status int `json:"status"`
	// Headers are sorted by name, each name once, at most [MaxHeaders].
	// Cookies are left out. Values are shortened to [MaxHeaderValue], and what
	// is no text or a control character in them is U+FFFD.
	Headers []Header `json:"headers"`
}

// AfterProviderResponseResult takes continue and block. Unlike at every other
// gate a hook that fails here lets the answer through, unless it says
// [OnFailureClosed]: the call was made and is paid for.
type AfterProviderResponseResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
}

// AfterProviderResponseFunc is a hook at this gate.
type AfterProviderResponseFunc = Func[AfterProviderResponse, AfterProviderResponseResult]

func (r AfterProviderResponseResult) answer() answer {
	return answer{action: r.Action, reason: r.Reason, annotations: r.Annotations}
}

func (AfterProviderResponse) gate() Gate                       { return GateAfterProviderResponse }
func (in AfterProviderResponse) about() subject                { return subjectOf(in.RunRef) }
func (in AfterProviderResponse) barred() AfterProviderResponse { return in }

func (in AfterProviderResponse) clone() AfterProviderResponse {
	in.Headers = append([]Header{}, in.Headers...)
	return in
}

func (in AfterProviderResponse) accept(AfterProviderResponseResult) (AfterProviderResponse, []change, error) {
	return in, nil, nil
}

func (AfterProviderResponse) merge(v Verdict[AfterProviderResponse]) AfterProviderResponseResult {
	return AfterProviderResponseResult{Action: v.Action, Reason: v.Reason}
}
