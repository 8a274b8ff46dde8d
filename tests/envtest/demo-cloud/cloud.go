// Package democloud is a cloud provider without a cloud, for cloud-controller-managers and old kube-controller-managers
// under test. Every node exists, every Service gets the same load balancer, and routes are kept in memory.
//
// It compiles with k8s.io/cloud-provider v0.30 to v0.37.
package democloud

import (
	"context"
	"io"
	"sync"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// Name is the value of --cloud-provider.
const Name = "demo"

// loadBalancer is the host name of every load balancer.
const loadBalancer = "load-balancer.example.test"

func init() {
	cloudprovider.RegisterCloudProvider(Name, func(io.Reader) (cloudprovider.Interface, error) {
		return &cloud{routes: map[string]*cloudprovider.Route{}}, nil
	})
}

type cloud struct {
	lock   sync.Mutex
	routes map[string]*cloudprovider.Route
}

func (*cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (*cloud) ProviderName() string                                              { return Name }
func (*cloud) HasClusterID() bool                                                { return true }
func (*cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (*cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (*cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                  { return c, true }
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                { return c, true }
func (c *cloud) Routes() (cloudprovider.Routes, bool)                            { return c, true }

func (*cloud) InstanceExists(context.Context, *v1.Node) (bool, error)   { return true, nil }
func (*cloud) InstanceShutdown(context.Context, *v1.Node) (bool, error) { return false, nil }

func (*cloud) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return &cloudprovider.InstanceMetadata{
		ProviderID:    Name + "://" + node.Name,
		InstanceType:  Name,
		NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}},
	}, nil
}

func status() *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: loadBalancer}}}
}

func (*cloud) GetLoadBalancer(context.Context, string, *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	return status(), true, nil
}

func (*cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (*cloud) EnsureLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return status(), nil
}

func (*cloud) UpdateLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) error { return nil }

func (*cloud) EnsureLoadBalancerDeleted(context.Context, string, *v1.Service) error { return nil }

func (c *cloud) ListRoutes(context.Context, string) ([]*cloudprovider.Route, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	var routes []*cloudprovider.Route
	for _, route := range c.routes {
		routes = append(routes, route)
	}
	return routes, nil
}

func (c *cloud) CreateRoute(_ context.Context, _, hint string, route *cloudprovider.Route) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	route.Name = hint + "-" + route.DestinationCIDR
	c.routes[route.Name] = route
	return nil
}

func (c *cloud) DeleteRoute(_ context.Context, _ string, route *cloudprovider.Route) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.routes, route.Name)
	return nil
}
