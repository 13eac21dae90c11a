//! The commands of README.md and of the guide, each run: as it is written, or as the comment above its block says.
//!
//! A block of commands is fenced as `console`; lines that begin with `$ ` are commands, what follows is what they printed
//! once. `<!-- run: COMMAND; COMMAND -->` above it stands for commands that take long or need another host, and
//! `<!-- not run: WHY -->` for installations. Says `skipped:` where namespaces are not allowed.

use std::path::{Path, PathBuf};

use crate::home::TestHome;
use crate::support::{PLUMB, skip};

/// A block of commands of a page.
struct CommandBlock {
    line: usize,
    shown: Vec<String>,
    run: Vec<String>,
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of a page.
fn blocks(page: &str) -> Vec<CommandBlock> {
    let mut found = Vec::new();
    let mut instead: Option<Vec<String>> = None;
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let comment = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        if let Some(comment) = comment {
            let commands = comment.strip_prefix("run: ");
            let commands = commands.map(|all| all.split("; ").map(str::to_owned).collect());
            let is_none = comment.starts_with("not run: ");
            instead = commands.or_else(|| is_none.then(Vec::new));
        }
        if line != "```console" {
            continue;
        }
        let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let commands = block.filter_map(|line| line.strip_prefix("$ "));
        let commands = commands.map(|line| line.split("   #").next().unwrap_or(line).trim());
        let shown: Vec<String> = commands.map(str::to_owned).collect();
        let run = instead.take().unwrap_or_else(|| shown.clone());
        found.push(CommandBlock { line: number + 1, shown, run });
    }
    found
}

/// Runs every command of a page, one after the other in one home, and expects success or a verdict.
fn run_page(name: &str) {
    let page = std::fs::read_to_string(repository().join(name)).unwrap();
    let place = TestHome::new();
    std::os::unix::fs::symlink(repository().join("scenarios"), place.path("scenarios")).unwrap();
    let program = Path::new(PLUMB).parent().unwrap().display().to_string();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    for block in blocks(&page) {
        assert!(!block.shown.is_empty(), "{name}, line {}: no command", block.line);
        for command in &block.run {
            let words = ["-c", command.as_str()];
            let output = place.command_of("sh", &words).env("PATH", &path).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            if ["may not make a network namespace", "/dev/net/tun"]
                .iter()
                .any(|it| said.contains(it))
            {
                return skip("no namespaces or no TUN here");
            }
            // The verdict of a comparison or of a link's check is an exit code.
            let judges = ["compare", "ab ", "link check"];
            let is_judged = judges.iter().any(|words| command.contains(words));
            let good: &[i32] = if is_judged { &[0, 1, 3] } else { &[0] };
            let code = output.status.code().unwrap_or(-1);
            let page = String::from_utf8_lossy(&output.stdout);
            assert!(
                good.contains(&code),
                "{name}, line {}: `{command}` ended with {code}\n{page}\n{said}",
                block.line
            );
        }
    }
}

#[test]
fn the_commands_of_the_readme_run() {
    run_page("README.md");
}

#[test]
fn the_commands_of_first_ladder_run() {
    run_page("docs/guide/first-ladder.md");
}

#[test]
fn the_commands_of_regression_run() {
    run_page("docs/guide/regression.md");
}

#[test]
fn the_commands_of_two_hosts_run() {
    run_page("docs/guide/two-hosts.md");
}

#[test]
fn the_commands_of_satellite_run() {
    run_page("docs/guide/satellite.md");
}

#[test]
fn the_commands_of_simulated_networks_run() {
    run_page("docs/guide/simulated.md");
}

#[test]
fn the_commands_of_remote_display_run() {
    run_page("docs/guide/remote-display.md");
}

#[test]
fn every_command_of_the_pages_is_in_a_block_that_is_run() {
    let guide = std::fs::read_dir(repository().join("docs/guide")).unwrap();
    let guide = guide.map(|entry| format!("docs/guide/{}", entry.unwrap().file_name().display()));
    for name in guide.chain(["README.md".to_owned()]) {
        // A folder has none.
        let page = std::fs::read_to_string(repository().join(&name)).unwrap_or_default();
        let fences = page.lines().filter(|line| line.starts_with("```")).step_by(2);
        let is_known = |fence: &str| matches!(fence, "```console" | "```text");
        assert!(fences.clone().all(is_known), "{name} has a block of another kind");
        let is_run = include_str!("guide.rs").contains(&format!("run_page(\"{name}\")"));
        assert!(is_run || !fences.clone().any(|fence| fence == "```console"), "{name}");
    }
}

#[test]
fn the_guide_has_a_chapter_for_each_scenario() {
    let page = std::fs::read_to_string(repository().join("docs/guide/simulated.md")).unwrap();
    for entry in std::fs::read_dir(repository().join("scenarios")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let command = format!("$ plumb sim scenarios/{name}\n");
        assert!(page.contains(&command), "{name} has no chapter with its command and its figure");
    }
}

#[test]
fn the_commands_of_tasks_run() {
    run_page("docs/guide/tasks.md");
}

#[test]
fn the_guide_lists_its_pages_and_twenty_tasks() {
    let guide = repository().join("docs/guide");
    let summary = std::fs::read_to_string(guide.join("SUMMARY.md")).unwrap();
    for entry in std::fs::read_dir(&guide).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_page =
            Path::new(&name).extension().is_some_and(|it| it == "md") && name != "SUMMARY.md";
        assert!(!is_page || summary.contains(&format!("({name})")), "{name}");
    }
    let tasks = std::fs::read_to_string(guide.join("tasks.md")).unwrap();
    let blocks = blocks(&tasks);
    assert_eq!(blocks.len(), 20);
    assert!(blocks.iter().all(|block| block.shown.len() == 1), "one command each");
}
