// Command coredns is CoreDNS with the few plugins that a cluster's DNS needs.
//
// CoreDNS as released links every plugin, cloud vendors' clients included, and takes several
// times longer to build. There is no cache plugin: answers come from memory as it is, and a name
// has to resolve the moment its pod has an address. The template denies every name outside.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() {
	// The order in which a query passes the plugins.
	dnsserver.Directives = []string{"bind", "ready", "errors", "kubernetes", "template"}
}

func main() { coremain.Run() }
