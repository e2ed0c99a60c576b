package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

func Example() {
	ctx := context.Background()
	c, err := client.New("http://127.0.0.1:8080", client.WithAPIKey("…"))
	if err != nil {
		log.Fatal(err)
	}
	session, err := c.CreateSession(ctx, &agentdv1.CreateSessionRequest{ExternalId: "chat-42"})
	if err != nil {
		log.Fatal(err)
	}
	run, err := c.StartRun(ctx, &agentdv1.StartRunRequest{SessionId: session.GetSessionId(), Text: "hello"})
	if client.ReasonOf(err) == "session_busy" {
		log.Fatal("one at a time")
	} else if err != nil {
		log.Fatal(err)
	}
	for e, err := range c.WatchRun(ctx, run.GetRunId(), run.GetAfter()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.GetSeq(), e.GetType(), e.GetDataJson())
	}
}
