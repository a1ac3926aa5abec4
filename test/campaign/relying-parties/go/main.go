// A relying party: go-oidc with golang.org/x/oauth2, used as documented.
//
// Reads its registration from the environment, prints the address to sign in at, reads the address that the browser
// was redirected to, and prints the identity it received.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// The length of the state that Keycloak sends.
const stateLength = 175

func main() {
	if err := signIn(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func signIn(ctx context.Context) error {
	provider, err := oidc.NewProvider(ctx, os.Getenv("ISSUER"))
	if err != nil {
		return err
	}
	config := oauth2.Config{
		ClientID:     os.Getenv("CLIENT_ID"),
		ClientSecret: os.Getenv("CLIENT_SECRET"),
		Endpoint:     provider.Endpoint(),
		RedirectURL:  os.Getenv("REDIRECT_URI"),
		Scopes:       []string{oidc.ScopeOpenID, "email", "profile"},
	}
	// x/oauth2 form-encodes both halves of the header (RFC 6749 §2.3.1).
	config.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	state := ""
	for len(state) < stateLength {
		state += rand.Text()
	}
	state = state[:stateLength]
	nonce, verifier := rand.Text(), oauth2.GenerateVerifier()
	fmt.Println(config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)))

	callback, err := readURL()
	if err != nil {
		return err
	}
	if callback.Get("state") != state {
		return errors.New("the state is another one")
	}
	token, err := config.Exchange(ctx, callback.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return err
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return errors.New("there is no id_token")
	}
	idToken, err := provider.Verifier(&oidc.Config{ClientID: config.ClientID}).Verify(ctx, raw)
	if err != nil {
		return err
	}
	if idToken.Nonce != nonce {
		return errors.New("the nonce is another one")
	}
	userInfo, err := provider.UserInfo(ctx, config.TokenSource(ctx, token))
	if err != nil {
		return err
	}
	var claims, profile map[string]any
	if err := errors.Join(idToken.Claims(&claims), userInfo.Claims(&profile)); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"id_token": claims, "userinfo": profile})
}

func readURL() (url.Values, error) {
	line := bufio.NewScanner(os.Stdin)
	if !line.Scan() {
		return nil, errors.New("nobody came back")
	}
	address, err := url.Parse(line.Text())
	if err != nil {
		return nil, err
	}
	return address.Query(), nil
}
