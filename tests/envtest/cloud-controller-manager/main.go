// cloud-controller-manager is Kubernetes' library for cloud providers with a cloud provider that has no cloud. In addition
// to the library's controllers it has the Node IPAM controller, as the managers of some clouds do: the one controller that
// current kube-controller-managers can still hand over by leader migration.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	genericapp "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/nodeipam"
	"k8s.io/kubernetes/pkg/controller/nodeipam/ipam"

	_ "kubectl-kcp.dev/tests/envtest/demo-cloud"
)

// Names of the controller in kube-controller-manager, from 1.28 on and before.
const (
	nodeIPAM      = "node-ipam-controller"
	nodeIPAMAlias = "nodeipam"
)

// nodeMaskSize is the default of kube-controller-manager for IPv4.
const nodeMaskSize = 24

func main() {
	settings, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatal(err)
	}
	controllers := app.DefaultInitFuncConstructors
	controllers[nodeIPAM] = app.ControllerInitFuncConstructor{
		InitContext: app.ControllerInitContext{ClientName: "node-controller"},
		Constructor: newNodeIPAM,
	}
	aliases := names.CCMControllerAliases()
	aliases[nodeIPAMAlias] = nodeIPAM
	command := app.NewCloudControllerManagerCommand(
		settings, newCloud, controllers, aliases, cliflag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

func newCloud(config *config.CompletedConfig) cloudprovider.Interface {
	provider := config.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(provider.Name, provider.CloudConfigFile)
	if err != nil {
		klog.Fatalf("Cloud provider could not be initialized: %v", err)
	}
	if cloud == nil {
		klog.Fatalf("Cloud provider is nil")
	}
	return cloud
}

func newNodeIPAM(init app.ControllerInitContext, config *config.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
	return func(ctx context.Context, manager genericapp.ControllerContext) (controller.Interface, bool, error) {
		shared := config.ComponentConfig.KubeCloudShared
		if !shared.AllocateNodeCIDRs {
			return nil, false, nil
		}
		_, pods, err := net.ParseCIDR(shared.ClusterCIDR)
		if err != nil {
			return nil, false, fmt.Errorf("--cluster-cidr: %w", err)
		}
		allocator, err := nodeipam.NewNodeIpamController(
			ctx,
			manager.InformerFactory.Core().V1().Nodes(),
			cloud,
			manager.ClientBuilder.ClientOrDie(init.ClientName),
			[]*net.IPNet{pods},
			nil,
			nil,
			[]int{nodeMaskSize},
			ipam.CIDRAllocatorType(shared.CIDRAllocatorType),
		)
		if err != nil {
			return nil, false, err
		}
		go allocator.RunWithMetrics(ctx, manager.ControllerManagerMetrics)
		return nil, true, nil
	}
}
