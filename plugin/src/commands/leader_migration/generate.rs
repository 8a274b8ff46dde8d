//! Runs `kubectl kcp leader-migration generate`.

use std::{fmt::Write as _, io::Write as _, path::Path, time::Instant};

use anyhow::{Context as _, anyhow, bail};
use jiff::Timestamp;
use kcp_api::Machine;
use kcp_client::{
    reader::Reader,
    reads::{discover, leader_migration::read_leader_migration, list_limit},
};
use kcp_control_plane::leader_migration::{
    ObservedManagers,
    generate::{CloudManifest, Facts, Generated, StepRequest, generate, start::StartOptions},
    permissions::{Identity, LEASES, role, role_binding},
    problem::MigrationProblem,
};
use kcp_rules::{
    leader_migration::{Component, Lock, Manager},
    syntax::parse_version,
};
use serde_json::Value;

use crate::{
    arguments::ControlPlaneName,
    commands::leader_migration::{
        arguments::{CloudIdentity, GenerateArguments, Part, StepName},
        input,
    },
    file::{self, NewFile, STDIN},
    printer::yaml,
    session::Session,
    verdict::Verdict,
};

/// What was read for a step.
struct Reads {
    control_plane: Value,
    machines: Vec<Machine>,
    observed: ObservedManagers,
}

/// The static Pod of cloud-controller-manager that a step installs.
struct StaticPod {
    content: String,
    manager: Manager,
}

pub(super) async fn run(arguments: &GenerateArguments, session: &Session) -> anyhow::Result<Verdict> {
    let reads = match (&arguments.file, &arguments.name) {
        (Some(_), _) if arguments.step != StepName::Start => bail!(
            "only --step start works with --filename: the other steps depend on what runs in the cluster"
        ),
        (Some(file), _) => from_manifest(file)?,
        (None, Some(name)) => Box::pin(from_cluster(name, arguments, session)).await?,
        (None, None) => bail!("specify a control plane, or give a manifest with --filename"),
    };
    let pod = static_pod(arguments, &reads.control_plane)?;
    let facts = Facts {
        control_plane: &reads.control_plane,
        machines: &reads.machines,
        observed: &reads.observed,
    };
    match generate(request(arguments, pod.as_ref())?, facts) {
        Ok(generated) => {
            let text = document(arguments, &generated, &reads.control_plane)?;
            write(&arguments.output_file, &text, session)?;
            Ok(Verdict::Met)
        }
        Err(problems) => Ok(refused(&problems, session)),
    }
}

async fn from_cluster(
    name: &ControlPlaneName,
    arguments: &GenerateArguments,
    session: &Session,
) -> anyhow::Result<Reads> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let reader: Reader<'_> = discover(&connection, list_limit(arguments.timeout)).await?;
    let name = name.read(&reader, list_limit(arguments.timeout)).await?;
    let (text, control_plane) = reader.read_control_plane(&connection.namespace, &name).await?;
    let machines = reader.read_snapshot(&connection.namespace, &name).await?.machines;
    let observed = read_leader_migration(&connection, &control_plane, &arguments.ccm_namespace, end);
    Ok(Reads {
        observed: Box::pin(observed).await,
        control_plane: serde_json::from_str(&text)?,
        machines,
    })
}

fn from_manifest(file: &Path) -> anyhow::Result<Reads> {
    Ok(Reads {
        control_plane: input::read_control_plane(file)?,
        machines: Vec::new(),
        observed: ObservedManagers {
            now: Timestamp::UNIX_EPOCH,
            managers: Ok(Vec::new()),
            locks: Vec::new(),
        },
    })
}

fn static_pod(arguments: &GenerateArguments, control_plane: &Value) -> anyhow::Result<Option<StaticPod>> {
    let Some(path) = &arguments.ccm_manifest else {
        return Ok(None);
    };
    let content = file::read(path)?;
    let objects = input::parse_objects(path, &content)?;
    match objects.as_slice() {
        [pod] if input::text(pod, "/kind") == "Pod" => {}
        _ => bail!(
            "{} must contain one Pod and nothing else, because the kubelet starts the file as a static Pod",
            path.display()
        ),
    }
    let manager = input::find_cloud_controller_manager(&objects, control_plane, arguments.ccm_version)
        .context("cannot use the manifest that --ccm-manifest names")?;
    let content = String::from_utf8(content).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(StaticPod { content, manager }))
}

fn request<'r>(
    arguments: &'r GenerateArguments,
    pod: Option<&'r StaticPod>,
) -> anyhow::Result<StepRequest<'r>> {
    let manifest = pod.map(|pod| CloudManifest {
        content: &pod.content,
        manager: &pod.manager,
    });
    let to = || arguments.to.as_deref().context("this step needs --to");
    Ok(match arguments.step {
        StepName::Start => StepRequest::Start(StartOptions {
            to: parse_version(to()?)?.minor,
            migrates_node_ipam: arguments.node_ipam,
            leader_name: &arguments.leader_name,
        }),
        StepName::Upgrade => StepRequest::Upgrade {
            version: to()?,
            manifest,
        },
        StepName::Finish => StepRequest::Finish { manifest },
        StepName::Rollback => StepRequest::Rollback,
    })
}

fn refused(problems: &[MigrationProblem], session: &Session) -> Verdict {
    for problem in problems {
        session.terminal.error(&anyhow!("{}", problem.message), None);
    }
    let mut fixes: Vec<&str> = problems.iter().map(|problem| problem.fix.as_str()).collect();
    fixes.dedup();
    for fix in fixes {
        session.terminal.hint(fix);
    }
    Verdict::Negative
}

/// The part that `-o` names, or the permissions and the patch.
fn document(
    arguments: &GenerateArguments,
    generated: &Generated,
    control_plane: &Value,
) -> anyhow::Result<String> {
    let permissions = permissions(arguments, generated)?;
    Ok(match arguments.part {
        Some(Part::Rbac) => permissions.context("this step needs no permissions")?,
        Some(Part::Patch) => patch(arguments, generated, control_plane)?,
        Some(Part::Configuration) => generated
            .configuration
            .clone()
            .context("the control plane has no leader migration configuration")?,
        None => {
            let patch = patch(arguments, generated, control_plane)?;
            match permissions {
                Some(_) if arguments.output_file != Path::new(STDIN) => {
                    bail!(
                        "the permissions and the patch go to different clusters, so they need two files: with --output-file, also pass -o rbac or -o patch"
                    )
                }
                Some(permissions) => format!("{permissions}---\n{patch}"),
                None => patch,
            }
        }
    })
}

/// The Role and the `RoleBinding`; `None` if the step needs none.
fn permissions(arguments: &GenerateArguments, generated: &Generated) -> anyhow::Result<Option<String>> {
    if matches!(arguments.step, StepName::Finish | StepName::Rollback) {
        return Ok(None);
    }
    let Some(lock) = &generated.lock else {
        return Ok(None);
    };
    let kube = Identity::User(format!("system:{}", Component::Kube));
    let identities = [kube, arguments.cloud.identity()];
    let mut text = format!(
        "# First, in the workload cluster, let the controller managers use the migration Lease:\n\
         #   {}kubectl apply -f {}\n\
         # To see what each of them may do:\n",
        pipe(arguments, "rbac"),
        file_name(arguments)
    );
    for identity in &identities {
        writeln!(
            text,
            "#   kubectl auth can-i update leases.{LEASES}/{} -n {} --as {}",
            lock.name,
            lock.namespace,
            identity.user()
        )?;
    }
    text += &yaml(&role(lock))?;
    text += "---\n";
    text += &yaml(&role_binding(lock, &identities))?;
    Ok(Some(text))
}

fn patch(
    arguments: &GenerateArguments,
    generated: &Generated,
    control_plane: &Value,
) -> anyhow::Result<String> {
    let field = |pointer| input::text(control_plane, pointer);
    let namespace = match field("/metadata/namespace") {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    let (group, version) = field("/apiVersion").split_once('/').unwrap_or_default();
    let mut text = format!(
        "# In the management cluster, change the control plane. If it has changed in the meantime, the API server rejects \
         the patch:\n\
         #   {}kubectl patch kubeadmcontrolplanes.{version}.{group} {}{namespace} --type=json --patch-file={}\n",
        pipe(arguments, "patch"),
        field("/metadata/name"),
        file_name(arguments)
    );
    if arguments.step == StepName::Finish
        && let Some(Lock { namespace, name }) = &generated.lock
    {
        write!(
            text,
            "# After the rollout, when no controller manager uses the migration Lease any more, in the workload cluster:\n\
             #   kubectl delete -n {namespace} lease/{name} role/leader-migration rolebinding/leader-migration\n"
        )?;
    }
    Ok(text + &yaml(&generated.patch)?)
}

/// The beginning of the command line that passes one part to kubectl, if the output has both parts. `…` stands for this command
/// itself.
fn pipe(arguments: &GenerateArguments, part: &str) -> String {
    let has_both = arguments.part.is_none() && matches!(arguments.step, StepName::Start | StepName::Upgrade);
    if has_both {
        format!("… -o {part} | ")
    } else {
        String::new()
    }
}

/// The name of the output for commands that read it.
fn file_name(arguments: &GenerateArguments) -> String {
    match arguments.output_file.to_str() {
        Some(STDIN) => "/dev/stdin".to_owned(),
        _ => arguments.output_file.display().to_string(),
    }
}

fn write(path: &Path, text: &str, session: &Session) -> anyhow::Result<()> {
    if path == Path::new(STDIN) {
        return session.terminal.print(text).context("cannot write to stdout");
    }
    let mut file = NewFile::create(path)?;
    let written = file.write_all(text.as_bytes());
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file.finish()?)
}

impl CloudIdentity {
    fn identity(&self) -> Identity {
        match &self.ccm_service_account {
            Some((namespace, name)) => Identity::ServiceAccount {
                namespace: namespace.clone(),
                name: name.clone(),
            },
            None => Identity::User(self.ccm_user.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn arguments(step: StepName) -> GenerateArguments {
        GenerateArguments {
            name: Some(ControlPlaneName::Own("edge".to_owned())),
            step,
            to: Some("v1.36.0".to_owned()),
            node_ipam: true,
            leader_name: "m".to_owned(),
            ccm_manifest: None,
            ccm_version: None,
            cloud: CloudIdentity {
                ccm_user: "system:cloud-controller-manager".to_owned(),
                ccm_service_account: Some(("kube-system".to_owned(), "ccm".to_owned())),
            },
            ccm_namespace: "kube-system".to_owned(),
            file: None,
            part: None,
            output_file: "-".into(),
            timeout: Duration::from_secs(20),
        }
    }

    fn control_plane() -> Value {
        json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": "edge", "namespace": "fleet", "uid": "u", "resourceVersion": "7"},
            "spec": {"version": "v1.35.4", "kubeadmConfigSpec": {
                "files": [{"path": "/etc/kubernetes/manifests/vip.yaml", "content": "vip"}]}},
        })
    }

    fn generated() -> Generated {
        let observed = ObservedManagers {
            now: Timestamp::UNIX_EPOCH,
            managers: Ok(Vec::new()),
            locks: Vec::new(),
        };
        let facts = Facts {
            control_plane: &control_plane(),
            machines: &[],
            observed: &observed,
        };
        generate(request(&arguments(StepName::Start), None).unwrap(), facts).unwrap()
    }

    fn text(arguments: &GenerateArguments) -> String {
        document(arguments, &generated(), &control_plane()).unwrap()
    }

    #[test]
    fn each_part_has_the_command_that_applies_it() {
        let start = arguments(StepName::Start);
        insta::assert_snapshot!(text(&start));
        let part = |part| GenerateArguments {
            part: Some(part),
            output_file: "out.yaml".into(),
            ..arguments(StepName::Upgrade)
        };
        let upgrade = text(&part(Part::Rbac));
        for line in [
            "#   kubectl apply -f out.yaml\n",
            "leases.coordination.k8s.io/m -n kube-system --as system:serviceaccount:kube-system:ccm\n",
        ] {
            assert!(upgrade.contains(line), "{upgrade}");
        }
        assert!(text(&part(Part::Patch)).contains(" --patch-file=out.yaml\n"));
        assert!(text(&part(Part::Configuration)).contains("\nleaderName: m\n"));
        let finish = GenerateArguments {
            part: Some(Part::Rbac),
            ..arguments(StepName::Finish)
        };
        assert_eq!(
            document(&finish, &generated(), &control_plane())
                .unwrap_err()
                .to_string(),
            "this step needs no permissions"
        );
        let delete =
            "#   kubectl delete -n kube-system lease/m role/leader-migration rolebinding/leader-migration\n";
        let finish = text(&arguments(StepName::Finish));
        assert!(finish.contains(delete), "{finish}");
    }
}
