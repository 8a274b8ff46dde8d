//! The Go type `Platform` of Hive's API, and the types of the `OpenShift` installer that it contains.

use super::go_type::GoType::{self, Bool, Int, Map, Pointer, Slice, String, Struct};

const REFERENCE: GoType = Struct(&[("name", String)]);
const STRINGS: GoType = Slice(&String);

/// The platforms of Hive's API, one of which is set.
pub(super) const PLATFORM: GoType = Struct(&[
    ("aws", Pointer(&AWS)),
    ("azure", Pointer(&AZURE)),
    ("baremetal", Pointer(&BARE_METAL)),
    ("gcp", Pointer(&GCP)),
    ("openstack", Pointer(&OPEN_STACK)),
    ("vsphere", Pointer(&VSPHERE)),
    ("agentBareMetal", Pointer(&AGENT_BARE_METAL)),
    ("ibmcloud", Pointer(&IBM_CLOUD)),
    ("none", Pointer(&Struct(&[]))),
    ("nutanix", Pointer(&NUTANIX)),
]);

const AWS: GoType = Struct(&[
    ("credentialsSecretRef", REFERENCE),
    (
        "credentialsAssumeRole",
        Pointer(&Struct(&[("roleARN", String), ("externalID", String)])),
    ),
    ("region", String),
    ("userTags", Map(&String)),
    (
        "privateLink",
        Pointer(&Struct(&[
            ("enabled", Bool),
            ("additionalAllowedPrincipals", Pointer(&STRINGS)),
        ])),
    ),
]);

const AZURE: GoType = Struct(&[
    ("credentialsSecretRef", REFERENCE),
    ("region", String),
    ("baseDomainResourceGroupName", String),
    ("cloudName", String),
]);

const BARE_METAL: GoType = Struct(&[("libvirtSSHPrivateKeySecretRef", REFERENCE)]);

const GCP: GoType = Struct(&[
    ("credentialsSecretRef", REFERENCE),
    ("region", String),
    ("privateServiceConnect", Pointer(&PRIVATE_SERVICE_CONNECT)),
    ("discardLocalSsdOnHibernate", Pointer(&Bool)),
]);

const PRIVATE_SERVICE_CONNECT: GoType = Struct(&[
    ("enabled", Bool),
    (
        "serviceAttachment",
        Pointer(&Struct(&[("subnet", Pointer(&SERVICE_ATTACHMENT_SUBNET))])),
    ),
]);

const SERVICE_ATTACHMENT_SUBNET: GoType = Struct(&[
    ("cidr", String),
    (
        "existing",
        Pointer(&Struct(&[("name", String), ("project", String)])),
    ),
]);

const OPEN_STACK: GoType = Struct(&[
    ("credentialsSecretRef", REFERENCE),
    ("certificatesSecretRef", Pointer(&REFERENCE)),
    ("cloud", String),
    ("trunkSupport", Bool),
]);

const VSPHERE: GoType = Struct(&[
    ("infrastructure", Pointer(&VSPHERE_INFRASTRUCTURE)),
    ("vCenter", String),
    ("credentialsSecretRef", REFERENCE),
    ("certificatesSecretRef", REFERENCE),
    ("datacenter", String),
    ("defaultDatastore", String),
    ("folder", String),
    ("cluster", String),
    ("network", String),
]);

/// The `Platform` type of the installer for vSphere.
const VSPHERE_INFRASTRUCTURE: GoType = Struct(&[
    ("vCenter", String),
    ("username", String),
    ("password", String),
    ("datacenter", String),
    ("defaultDatastore", String),
    ("folder", String),
    ("cluster", String),
    ("resourcePool", String),
    ("clusterOSImage", String),
    ("apiVIP", String),
    ("apiVIPs", STRINGS),
    ("ingressVIP", String),
    ("ingressVIPs", STRINGS),
    ("defaultMachinePlatform", Pointer(&VSPHERE_MACHINE_POOL)),
    ("network", String),
    ("diskType", String),
    ("vcenters", Slice(&VCENTER)),
    ("failureDomains", Slice(&VSPHERE_FAILURE_DOMAIN)),
    ("nodeNetworking", Pointer(&NODE_NETWORKING)),
    ("loadBalancer", Pointer(&Struct(&[("type", String)]))),
    ("dnsRecordsType", String),
    ("hosts", Slice(&Pointer(&VSPHERE_HOST))),
]);

const VSPHERE_MACHINE_POOL: GoType = Struct(&[
    ("cpus", Int),
    ("coresPerSocket", Int),
    ("memoryMB", Int),
    ("osDisk", Struct(&[("diskSizeGB", Int)])),
    (
        "dataDisks",
        Slice(&Struct(&[
            ("name", String),
            ("sizeGiB", Int),
            ("provisioningMode", String),
        ])),
    ),
    ("zones", STRINGS),
]);

const VCENTER: GoType = Struct(&[
    ("server", String),
    ("port", Int),
    ("user", String),
    ("password", String),
    ("datacenters", STRINGS),
]);

const VSPHERE_FAILURE_DOMAIN: GoType = Struct(&[
    ("name", String),
    ("region", String),
    ("zone", String),
    ("server", String),
    ("topology", VSPHERE_TOPOLOGY),
    ("regionType", String),
    ("zoneType", String),
]);

const VSPHERE_TOPOLOGY: GoType = Struct(&[
    ("datacenter", String),
    ("computeCluster", String),
    ("networks", STRINGS),
    ("datastore", String),
    ("resourcePool", String),
    ("folder", String),
    ("template", String),
    ("tagIDs", STRINGS),
    ("hostGroup", String),
]);

const NODE_NETWORKING: GoType = Struct(&[("external", NODE_NETWORK), ("internal", NODE_NETWORK)]);

const NODE_NETWORK: GoType = Struct(&[
    ("networkSubnetCidr", STRINGS),
    ("network", String),
    ("excludeNetworkSubnetCidr", STRINGS),
]);

const VSPHERE_HOST: GoType = Struct(&[
    ("failureDomain", String),
    (
        "networkDevice",
        Pointer(&Struct(&[
            ("gateway", String),
            ("ipAddrs", STRINGS),
            ("nameservers", STRINGS),
        ])),
    ),
    ("role", String),
]);

const AGENT_BARE_METAL: GoType = Struct(&[(
    "agentSelector",
    Struct(&[
        ("matchLabels", Map(&String)),
        (
            "matchExpressions",
            Slice(&Struct(&[
                ("key", String),
                ("operator", String),
                ("values", STRINGS),
            ])),
        ),
    ]),
)]);

const IBM_CLOUD: GoType = Struct(&[
    ("credentialsSecretRef", REFERENCE),
    ("accountID", String),
    ("cisInstanceCRN", String),
    ("region", String),
]);

const NUTANIX: GoType = Struct(&[
    ("prismCentral", PRISM_ENDPOINT),
    ("credentialsSecretRef", REFERENCE),
    ("certificatesSecretRef", REFERENCE),
    ("failureDomains", Slice(&NUTANIX_FAILURE_DOMAIN)),
]);

const PRISM_ENDPOINT: GoType = Struct(&[("address", String), ("port", Int)]);

const NUTANIX_FAILURE_DOMAIN: GoType = Struct(&[
    ("name", String),
    (
        "prismElement",
        Struct(&[("uuid", String), ("endpoint", PRISM_ENDPOINT), ("name", String)]),
    ),
    ("subnetUUIDs", STRINGS),
    ("storageContainers", Slice(&NUTANIX_RESOURCE)),
    ("dataSourceImages", Slice(&NUTANIX_RESOURCE)),
]);

const NUTANIX_RESOURCE: GoType = Struct(&[("referenceName", String), ("uuid", String), ("name", String)]);
