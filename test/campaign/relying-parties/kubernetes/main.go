// The authenticator of kube-apiserver for tokens of OpenID Connect, with a file for --authentication-config.
//
// Reads one id_token per line and prints whom the API server takes its bearer for, or why it refuses it. Kubernetes
// requires https, so connections to ISSUER go to ADDRESS.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	authenticator "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

type toAddress struct{ issuer, address string }

func (to toAddress) RoundTrip(request *http.Request) (*http.Response, error) {
	if "https://"+request.URL.Host != to.issuer {
		return nil, fmt.Errorf("a request to %s", request.URL)
	}
	request = request.Clone(request.Context())
	request.URL.Scheme, request.URL.Host = "http", to.address
	return http.DefaultTransport.RoundTrip(request)
}

func main() {
	if err := authenticate(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func authenticate(ctx context.Context) error {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	var config apiserver.AuthenticationConfiguration
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	if err := runtime.DecodeInto(codecs.UniversalDecoder(apiserver.SchemeGroupVersion), text, &config); err != nil {
		return err
	}
	tokens, err := authenticator.New(ctx, authenticator.Options{
		JWTAuthenticator: config.JWT[0],
		Client:           &http.Client{Transport: toAddress{os.Getenv("ISSUER"), os.Getenv("ADDRESS")}},
		// What kube-apiserver passes for a file.
		SupportedSigningAlgs: authenticator.AllValidSigningAlgorithms(),
	})
	if err != nil {
		return err
	}
	if err := ready(tokens); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		response, known, err := tokens.AuthenticateToken(ctx, lines.Text())
		answer := map[string]any{"known": known}
		if err != nil {
			answer["refusal"] = err.Error()
		} else if known {
			answer["name"], answer["groups"] = response.User.GetName(), response.User.GetGroups()
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until the authenticator has read the metadata of the issuer.
func ready(tokens authenticator.AuthenticatorTokenWithHealthCheck) error {
	for range 100 {
		if tokens.HealthCheck() == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.Join(errors.New("the issuer could not be read"), tokens.HealthCheck())
}
