//! `src/rpc` is the output of the generators for `proto`. `UPDATE_ETCD_CLIENT=1` writes it.

use std::path::Path;
use std::{env, fs};

#[test]
fn is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("etcd-client");
    fs::create_dir_all(&made).unwrap();
    let descriptors = protox::compile(["rpc.proto"], [root.join("proto")]).unwrap();
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .out_dir(&made)
        .compile_fds(descriptors)
        .unwrap();
    for file in ["etcdserverpb.rs", "mvccpb.rs"] {
        let now = fs::read_to_string(made.join(file)).unwrap();
        let checked_in = root.join("src/rpc").join(file);
        if env::var_os("UPDATE_ETCD_CLIENT").is_some() {
            fs::write(&checked_in, &now).unwrap();
        }
        assert!(
            fs::read_to_string(&checked_in).unwrap_or_default() == now,
            "{} is not what proto/ makes; UPDATE_ETCD_CLIENT=1 writes it",
            checked_in.display()
        );
    }
}
