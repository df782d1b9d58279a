//! How a project is built: the steps of its language, or the command that it names itself.
//!
//! What belongs to a language's own tools (bundling, type checks, the world of a component) is done by a script of its SDK, which lies in
//! the project. Here stands which program runs it, what has to be installed before, and where the component is then.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

mod native;

pub(super) use native::{INSTALL_CLANG, INSTALL_GO};

use super::Error;
use crate::{cli::language::Language, config::Module};

/// Where the component of a language lies whose tools do not say it, unless `module.path` says otherwise.
const COMPONENT: &str = "target/guest.wasm";

/// What a new project in Python asks for.
const COMPONENTIZE_PY: &str = include_str!("../../../templates/python/requirements.txt");

/// The steps of a build.
#[derive(Debug)]
pub(super) struct Recipe {
    /// They run one after another, in the project's folder.
    pub steps: Vec<Step>,
    /// The component, where the steps do not tell of it themselves.
    pub component: Option<PathBuf>,
}

/// A program that a build runs.
#[derive(Debug)]
pub(super) struct Step {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Variables beside those of this program.
    pub env: &'static [(&'static str, &'static str)],
    /// The command as it is shown to people.
    pub shown: String,
    pub kind: Kind,
}

/// What a step is, as far as its end and its output are read differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The project's own command, run by a shell: exit code 127 is a missing tool.
    Shell,
    /// Cargo, which tells of its components in JSON.
    Cargo,
    /// A tool that is started by itself. What to do where it is not there.
    Tool {
        /// Its name, and the version that is needed.
        what: &'static str,
        /// One command that installs it.
        install: &'static str,
    },
}

/// How this project is built.
///
/// # Errors
/// Where the project does not say how, or lacks what its recipe needs.
pub(super) fn of(dir: &Path, module: &Module) -> Result<Recipe, Error> {
    let component = || {
        let path = module.path.clone();
        path.unwrap_or_else(|| dir.join(COMPONENT))
    };
    if let Some(line) = &module.build {
        if module.path.is_none() {
            return Err(Error::Project(format!(
                "module.build is `{line}`, and module.path does not say which component it makes: set both"
            )));
        }
        return Ok(one(shell(line), None));
    }
    match Language::of(&module.language) {
        Some(Language::Rust) => Ok(one(cargo(dir)?, None)),
        Some(Language::Ts | Language::Js) => {
            let component = component();
            Ok(one(node(dir, &component)?, Some(component)))
        }
        Some(Language::Python) => {
            let component = component();
            Ok(one(python(dir, &component)?, Some(component)))
        }
        Some(Language::C) => {
            let component = component();
            Ok(one(native::c(dir, &component)?, Some(component)))
        }
        Some(Language::Go) => {
            let component = component();
            Ok(one(native::go(dir, &component)?, Some(component)))
        }
        None => Err(Error::Project(format!(
            "module.language is {:?}, which has no build command of its own ({} have): set module.build and module.path",
            module.language,
            Language::known()
        ))),
    }
}

fn one(step: Step, component: Option<PathBuf>) -> Recipe {
    Recipe {
        steps: vec![step],
        component,
    }
}

fn shell(line: &str) -> Step {
    Step {
        program: "sh".into(),
        args: vec!["-c".into(), line.into()],
        env: &[],
        shown: line.into(),
        kind: Kind::Shell,
    }
}

fn cargo(dir: &Path) -> Result<Step, Error> {
    if !dir.join("Cargo.toml").exists() {
        return Err(Error::Project(format!(
            "{} has no Cargo.toml: set module.build and module.path in quarry.toml for another way to build",
            dir.display()
        )));
    }
    let args = [
        "build",
        "--release",
        "--target",
        "wasm32-wasip2",
        "--lib",
        "--message-format=json-render-diagnostics",
    ];
    Ok(Step {
        program: "cargo".into(),
        args: args.map(OsString::from).to_vec(),
        env: &[],
        shown: "cargo build --release --target wasm32-wasip2".into(),
        kind: Kind::Cargo,
    })
}

/// TypeScript and JavaScript: the SDK's own script, with the packages that the project's lock names.
fn node(dir: &Path, component: &Path) -> Result<Step, Error> {
    const SCRIPT: &str = "node_modules/quarry-guest/build.js";
    const PACKAGES: [(&str, &str); 3] = [
        (SCRIPT, "the guest SDK (quarry-guest)"),
        (
            "node_modules/@bytecodealliance/componentize-js/package.json",
            "componentize-js",
        ),
        ("node_modules/rolldown/package.json", "rolldown"),
    ];
    if !dir.join("package.json").exists() {
        return Err(Error::Project(format!(
            "{} has no package.json: `quarry new NAME --lang ts` makes a project that has one",
            dir.display()
        )));
    }
    for (file, what) in PACKAGES {
        if !dir.join(file).exists() {
            return Err(Error::Missing {
                what: format!(
                    "{what} is missing in {}",
                    dir.join("node_modules").display()
                ),
                install: "npm ci".into(),
            });
        }
    }
    Ok(Step {
        program: "node".into(),
        args: vec![SCRIPT.into(), "--out".into(), absolute(component)],
        env: &[],
        shown: format!("node {SCRIPT}"),
        kind: Kind::Tool {
            what: "`node` (Node.js 20 or later)",
            install: "apt-get install nodejs npm (where that is older: https://nodejs.org)",
        },
    })
}

/// Python: the SDK's own script, with the componentize-py of the project's `.venv`, of the environment in use, or of the search path.
fn python(dir: &Path, component: &Path) -> Result<Step, Error> {
    const SCRIPT: &str = "quarry_guest/build.py";
    if !dir.join(SCRIPT).exists() {
        return Err(Error::Project(format!(
            "{} has no {SCRIPT}, which is the guest SDK's: `quarry new NAME --lang python` makes a project that has it",
            dir.display()
        )));
    }
    let tools = tools(dir, "componentize-py").ok_or_else(|| Error::Missing {
        what: format!(
            "the build needs `{}`, which is missing",
            COMPONENTIZE_PY.trim()
        ),
        install: "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt".into(),
    })?;
    let beside = tools.join("python3");
    let program = if beside.exists() {
        beside.into()
    } else {
        OsString::from("python3")
    };
    Ok(Step {
        program,
        // Isolated from a user's own settings, and without a `__pycache__` that would look like a change of the project.
        args: vec![
            "-B".into(),
            SCRIPT.into(),
            "--out".into(),
            absolute(component),
            "--tool".into(),
            tools.join("componentize-py").into(),
        ],
        env: &[],
        shown: format!("python3 {SCRIPT}"),
        kind: Kind::Tool {
            what: "`python3` (Python 3.10 or later)",
            install: "apt-get install python3 python3-venv",
        },
    })
}

/// The folder that has this tool: of the project's `.venv`, of the environment in use, or of the search path.
fn tools(dir: &Path, tool: &str) -> Option<PathBuf> {
    let environment = env::var_os("VIRTUAL_ENV").map(|home| Path::new(&home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = [dir.join(".venv/bin")]
        .into_iter()
        .chain(environment)
        .chain(env::split_paths(&path));
    let found = folders.find(|folder| folder.join(tool).is_file())?;
    // Steps run in the project's folder, whatever this program's is.
    std::path::absolute(found).ok()
}

fn absolute(path: &Path) -> OsString {
    std::path::absolute(path).map_or_else(|_| path.into(), OsString::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn project(language: &str, files: &[&str]) -> (tempfile::TempDir, Module) {
        let home = tempfile::tempdir().unwrap();
        for file in files {
            let file = home.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let module = Module {
            language: language.into(),
            ..Module::default()
        };
        (home, module)
    }

    #[test]
    fn what_a_project_lacks_is_named_with_what_to_do() {
        let script = "node_modules/quarry-guest/build.js";
        let componentize = "node_modules/@bytecodealliance/componentize-js/package.json";
        for (language, files, parts) in [
            ("rust", &[][..], ["no Cargo.toml", "module.build"]),
            ("typescript", &[], ["no package.json", "quarry new"]),
            (
                "typescript",
                &["package.json"],
                ["guest SDK", "install it with: npm ci"],
            ),
            (
                "javascript",
                &["package.json", script],
                ["componentize-js is missing", "npm ci"],
            ),
            (
                "javascript",
                &["package.json", script, componentize],
                ["rolldown is missing", "npm ci"],
            ),
            ("python", &[], ["quarry_guest/build.py", "quarry new"]),
            ("c", &[], ["quarry_guest/quarry.h", "quarry new"]),
            ("c", &["quarry_guest/quarry.h"], ["src", "no C source"]),
            ("go", &[], ["no go.mod", "quarry new"]),
            ("cobol", &[], ["\"cobol\"", "rust, typescript"]),
        ] {
            let (home, module) = project(language, files);
            let error = of(home.path(), &module).unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{language} {files:?}: {error}");
            }
        }
    }

    #[test]
    fn the_tools_of_the_project_come_first() {
        let files = [
            "quarry_guest/build.py",
            ".venv/bin/componentize-py",
            ".venv/bin/python3",
        ];
        let (home, module) = project("python", &files);
        let recipe = of(home.path(), &module).unwrap();
        let venv = home.path().join(".venv/bin");
        assert_eq!(recipe.component, Some(home.path().join(COMPONENT)));
        assert_eq!(recipe.steps[0].program, venv.join("python3"));
        let tool = venv.join("componentize-py");
        assert_eq!(recipe.steps[0].args.last(), Some(&tool.into()));
    }

    #[test]
    fn a_path_of_the_project_wins() {
        let files = [
            "package.json",
            "node_modules/quarry-guest/build.js",
            "node_modules/@bytecodealliance/componentize-js/package.json",
            "node_modules/rolldown/package.json",
        ];
        let (home, mut module) = project("ts", &files);
        module.path = Some(home.path().join("out/my.wasm"));
        let recipe = of(home.path(), &module).unwrap();
        assert_eq!(recipe.component, module.path);
        assert!(
            recipe.steps[0]
                .args
                .contains(&home.path().join("out/my.wasm").into())
        );
    }
}
