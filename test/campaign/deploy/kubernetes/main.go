// Decodes Kubernetes manifests as the API server does with strict validation: unknown and repeated fields are errors.
package main

import (
	"fmt"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

func main() {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	failed := false
	for _, file := range os.Args[1:] {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		for index, document := range strings.Split(string(text), "\n---\n") {
			if _, kind, err := decoder.Decode([]byte(document), nil, nil); err != nil {
				failed = true
				fmt.Printf("%s, document %d: %v\n", file, index+1, err)
			} else {
				fmt.Printf("%s: %s\n", file, kind.Kind)
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}
