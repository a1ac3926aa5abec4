// Connects to an MCP server with the client of the MCP SDK for Go, and calls its tools: as ../python/mcp_client.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/url"
	"os"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

var input = bufio.NewReader(os.Stdin)

// visit prints where a person has to sign in, and reads the address that the person returns to.
func visit(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
	fmt.Println(args.URL)
	line, err := input.ReadString('\n')
	if err != nil {
		return nil, err
	}
	callback, err := url.Parse(line[:len(line)-1])
	if err != nil {
		return nil, err
	}
	query := callback.Query()
	return &auth.AuthorizationResult{Code: query.Get("code"), State: query.Get("state"), Iss: query.Get("iss")}, nil
}

func handler(mode string) (auth.OAuthHandler, error) {
	callback := os.Getenv("CALLBACK")
	config := &auth.AuthorizationCodeHandlerConfig{RedirectURL: callback, AuthorizationCodeFetcher: visit}
	switch mode {
	case "secret":
		return extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{
			Credentials: &oauthex.ClientCredentials{
				ClientID:         os.Getenv("CLIENT_ID"),
				ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: os.Getenv("CLIENT_SECRET")},
			},
		})
	case "document":
		config.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: os.Getenv("CLIENT_METADATA_URL")}
	case "registration":
		config.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{
			Metadata: &oauthex.ClientRegistrationMetadata{ClientName: "Notes client", RedirectURIs: []string{callback}},
		}
	}
	return auth.NewAuthorizationCodeHandler(config)
}

func main() {
	ctx := context.Background()
	oauth, err := handler(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	transport := &mcp.StreamableClientTransport{Endpoint: os.Getenv("RESOURCE"), OAuthHandler: oauth}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1.0.0"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		log.Fatal(err)
	}
	results := []json.RawMessage{}
	for _, call := range []*mcp.CallToolParams{{Name: "whoami"}, {Name: "add_note", Arguments: map[string]any{"text": "Milk"}}} {
		result, err := session.CallTool(ctx, call)
		if err != nil {
			log.Fatal(err)
		}
		results = append(results, json.RawMessage(result.Content[0].(*mcp.TextContent).Text))
	}
	output, err := json.Marshal(results)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(output))
	session.Close()
}
