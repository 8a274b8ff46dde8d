//! Creates the link through which kubectl completes the plugin's command lines.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::arguments::invocation::completion_name;

/// Where the link is, and whether it was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Installed {
    Created(PathBuf),
    Present(PathBuf),
}

#[derive(Debug, Error)]
pub(super) enum LinkError {
    #[error(
        "{} is not named like a plugin of kubectl, so kubectl cannot find its completion; rename it to kubectl-kcp",
        program.display()
    )]
    NotAPlugin { program: PathBuf },
    #[error(
        "{} exists and is not a link to {}, so it was not changed; remove it, and run the command again",
        link.display(), program.display()
    )]
    Foreign { link: PathBuf, program: PathBuf },
    #[error(
        "no folder on your PATH is writable; run this command as another user, or create a link {name} to {} in a folder \
         on your PATH",
        program.display()
    )]
    NoFolder { name: String, program: PathBuf },
    #[error("cannot create {}", link.display())]
    Io {
        link: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Creates the link in the folder of the program if that folder is on the PATH, otherwise in the first folder on the PATH that is
/// writable. Changes nothing if kubectl already finds a link to the program.
pub(super) fn install(program: &Path, folders: &[PathBuf]) -> Result<Installed, LinkError> {
    let name = program.file_name().and_then(completion_name);
    let Some(name) = name else {
        return Err(LinkError::NotAPlugin {
            program: program.to_owned(),
        });
    };
    let foreign = |link: PathBuf| LinkError::Foreign {
        link,
        program: program.to_owned(),
    };
    // kubectl runs the first such file on the PATH.
    let found = folders.iter().map(|folder| folder.join(&name));
    if let Some(found) = found.into_iter().find(|link| link.exists()) {
        return if is_same_file(&found, program) {
            Ok(Installed::Present(found))
        } else {
            Err(foreign(found))
        };
    }
    let own_folder = program.parent().unwrap_or(Path::new("/"));
    let program_folder = folders.iter().filter(|folder| *folder == own_folder).take(1);
    let others = folders.iter().filter(|folder| folder.is_absolute());
    for folder in program_folder.chain(others) {
        let link = folder.join(&name);
        let target = if folder == own_folder {
            program.file_name().unwrap_or_else(|| OsStr::new("")).as_ref()
        } else {
            program
        };
        match symlink(target, &link) {
            Ok(()) => return Ok(Installed::Created(link)),
            // There is a link that leads nowhere, so the search above did not find it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(foreign(link)),
            Err(error) if is_unwritable(&error) => {}
            Err(source) => return Err(LinkError::Io { link, source }),
        }
    }
    Err(LinkError::NoFolder {
        name,
        program: program.to_owned(),
    })
}

fn is_unwritable(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(
        error.kind(),
        PermissionDenied | ReadOnlyFilesystem | NotFound | NotADirectory
    )
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Creates a symbolic link. Fails if the file exists.
#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_target: &Path, _link: &Path) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "links are supported only on Unix; copy the program instead",
    ))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use super::{Installed, LinkError, install};

    const NAME: &str = "kubectl_complete-kcp";

    /// Folders `a` and `b`, with the program in `a`.
    fn folders() -> (tempfile::TempDir, [PathBuf; 2], PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|name| root.path().join(name));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        let program = folders[0].join("kubectl-kcp");
        fs::write(&program, "program").unwrap();
        (root, folders, program)
    }

    #[test]
    fn the_link_is_beside_the_program_if_kubectl_looks_there() {
        let (_root, [a, b], program) = folders();
        let path = [b, a.clone()];
        let link = a.join(NAME);
        assert_eq!(
            install(&program, &path).unwrap(),
            Installed::Created(link.clone())
        );
        // It still leads to the program after both move to another folder.
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("kubectl-kcp"));
        assert_eq!(install(&program, &path).unwrap(), Installed::Present(link));
    }

    #[test]
    fn otherwise_the_link_is_in_the_first_folder_that_exists() {
        let (root, [_, b], program) = folders();
        let path = [root.path().join("missing"), PathBuf::from("relative"), b.clone()];
        let link = b.join(NAME);
        assert_eq!(
            install(&program, &path).unwrap(),
            Installed::Created(link.clone())
        );
        assert_eq!(fs::read_link(&link).unwrap(), program);
        let none = install(&program, &path[..2]).unwrap_err();
        assert!(matches!(none, LinkError::NoFolder { .. }), "{none}");
    }

    #[test]
    fn a_file_of_others_is_never_replaced() {
        let (_root, [a, b], program) = folders();
        let path = [a.clone(), b.clone()];
        fs::write(b.join(NAME), "theirs").unwrap();
        let refused = install(&program, &path).unwrap_err().to_string();
        let expected = format!(
            "{} exists and is not a link to {}, so it was not changed; remove it, and run the command again",
            b.join(NAME).display(),
            program.display()
        );
        assert_eq!(refused, expected);
        assert_eq!(fs::read_to_string(b.join(NAME)).unwrap(), "theirs");
        assert!(!a.join(NAME).exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_nowhere_is_not_replaced() {
        let (_root, [a, _], program) = folders();
        std::os::unix::fs::symlink("gone", a.join(NAME)).unwrap();
        let refused = install(&program, std::slice::from_ref(&a)).unwrap_err();
        assert!(matches!(refused, LinkError::Foreign { .. }), "{refused}");
        assert_eq!(fs::read_link(a.join(NAME)).unwrap(), Path::new("gone"));
    }

    #[test]
    fn a_program_with_another_name_is_no_plugin() {
        let error = install(Path::new("/bin/kcp"), &[]).unwrap_err();
        assert!(matches!(error, LinkError::NotAPlugin { .. }), "{error}");
    }
}
