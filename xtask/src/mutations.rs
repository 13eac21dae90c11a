//! Puts known faults back, one at a time, and sees that a test fails for each.
//!
//! In a copy of what is committed, so that nothing is left in the tree whatever happens.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Simulated tables of the self-test: enough for intervals a little too narrow to show.
const TABLES: &str = "200";

/// Where the faults are listed.
pub(crate) const LIST: &str = "xtask/mutations.toml";

/// One of the faults listed.
struct Mutation {
    finding: i64,
    fault: String,
    file: String,
    find: String,
    replace: String,
    test: Vec<String>,
}

impl Mutation {
    fn read(entry: &toml::Value) -> Option<Self> {
        let text = |key: &str| entry.get(key)?.as_str().map(str::to_owned);
        let words = entry.get("test")?.as_array()?.iter();
        Some(Self {
            finding: entry.get("finding")?.as_integer()?,
            fault: text("fault")?,
            file: text("file")?,
            find: text("find")?,
            replace: text("replace")?,
            test: words.map(|word| word.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        })
    }

    fn read_all(root: &Path) -> anyhow::Result<Vec<Self>> {
        let list: toml::Value = toml::from_str(&std::fs::read_to_string(root.join(LIST))?)?;
        let entries = list.get("mutation").and_then(toml::Value::as_array);
        let all = entries.context("no mutations")?.iter().map(Self::read).collect::<Option<_>>();
        all.context("a mutation lacks a key")
    }

    /// The code with this fault.
    fn apply(&self, code: &str) -> anyhow::Result<String> {
        let places = code.matches(&self.find).count();
        ensure!(
            places == 1,
            "finding {}: {:?} occurs {places} times in {}, not once: update {LIST}",
            self.finding,
            self.find,
            self.file
        );
        Ok(code.replace(&self.find, &self.replace))
    }
}

/// Why faults of the list cannot be put back, one message each.
///
/// # Errors
/// A list that cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let apply = |mutation: &Mutation| {
        let code = std::fs::read_to_string(root.join(&mutation.file));
        mutation.apply(&code.with_context(|| mutation.file.clone())?)
    };
    let errors =
        Mutation::read_all(root)?.into_iter().filter_map(|mutation| apply(&mutation).err());
    Ok(errors.map(|error| format!("{error:#}")).collect())
}

/// Whether every fault, or those of these numbers, makes its test fail; each is told on a line of `out`.
///
/// # Errors
/// A mutation that no longer fits the code, tests that fail without one, or a tool that is missing.
pub fn run(root: &Path, only: &[i64], out: &mut dyn Write) -> anyhow::Result<bool> {
    let mut all = Mutation::read_all(root)?;
    all.retain(|mutation| only.is_empty() || only.contains(&mutation.finding));
    ensure!(!all.is_empty(), "no mutation of these numbers in {LIST}");
    let folder = tempfile::tempdir_in(root.join("target"))?;
    let tree = folder.path().join("tree");
    let tar = format!("mkdir {0:?} && git archive HEAD | tar -x -C {0:?}", tree.display());
    let status = Command::new("sh").args(["-c", &tar]).current_dir(root).status()?;
    ensure!(status.success(), "cannot copy the tree with git archive and tar");
    let target = root.join("target/mutations");
    let test = |action: &str, of: &Mutation| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--quiet", action]).args(&of.test).arg("--target-dir").arg(&target);
        cargo.env("PLUMB_SELFTEST_TABLES", TABLES).current_dir(&tree);
        Ok::<_, anyhow::Error>(
            cargo.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success(),
        )
    };
    let mut is_caught = true;
    for (index, mutation) in all.iter().enumerate() {
        let is_new = all[..index].iter().all(|other| other.test != mutation.test);
        ensure!(!is_new || test("--no-fail-fast", mutation)?, "{:?} fails as it is", mutation.test);
        let path = tree.join(&mutation.file);
        let text = std::fs::read_to_string(&path).with_context(|| mutation.file.clone())?;
        std::fs::write(&path, mutation.apply(&text)?)?;
        // A fault that does not compile would pass for one that was found.
        let builds = test("--no-run", mutation)?;
        let fails = !test("--no-fail-fast", mutation)?;
        std::fs::write(&path, text)?;
        let told = match (builds, fails) {
            (false, _) => "DOES NOT COMPILE",
            (true, true) => "caught",
            (true, false) => "MISSED",
        };
        is_caught &= builds && fails;
        writeln!(out, "{:>2}  {told:8}  {}", mutation.finding, mutation.fault)?;
        out.flush()?;
    }
    Ok(is_caught)
}
