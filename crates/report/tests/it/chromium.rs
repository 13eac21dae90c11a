//! The page in a real browser: nothing is wider than the window, nothing is missing without script.
//!
//! Needs Debian's `chromium`; says `skipped:` where there is none, and fails for that under CI=true.
//! Left out: taste, which needs eyes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture;

fn browser() -> Option<PathBuf> {
    let found = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no chromium (apt-get install chromium)");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "CI must have chromium");
    }
    found
}

/// The page's document after loading, with a measuring script added to a copy of the page.
fn measured(browser: &Path, name: &str, page: &str, width: u32) -> String {
    let directory = tempfile::tempdir().unwrap();
    // The page forbids scripts, so the copy that is measured may not say so.
    let script = "<script>addEventListener('load',()=>{const wide=[...document.querySelectorAll(\
                  'body *')].filter(e=>!e.closest('.scroll,pre,svg')&&\
                  e.getBoundingClientRect().right>document.documentElement.clientWidth+1).map(e=>e.tagName);\
                  document.body.dataset.widths=document.documentElement.scrollWidth-\
                  document.documentElement.clientWidth+' over, too wide: '+wide+'; high: '+\
                  document.documentElement.scrollHeight})</script></body>";
    let copy = page.replace("default-src 'none'", "script-src 'unsafe-inline'");
    let copy = copy.replace("</body>", script);
    let inner = directory.path().join(name);
    std::fs::write(&inner, copy).unwrap();
    // A window may have a least width; a frame has not.
    let frame = format!(
        "<body><iframe id=f width={width} height=900 src=\"{name}\"></iframe><script>\
         addEventListener('load',()=>{{document.body.dataset.seen=\
         document.getElementById('f').contentDocument.body.dataset.widths}})</script>"
    );
    let outer = directory.path().join("frame.html");
    std::fs::write(&outer, frame).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--allow-file-access-from-files", "--dump-dom", "--virtual-time-budget=4000"])
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg(format!("file://{}", outer.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let seen = dom.split("data-seen=\"").nth(1).and_then(|rest| rest.split('"').next());
    seen.map_or_else(|| format!("no answer: {dom}"), str::to_owned)
}

#[test]
fn nothing_on_a_page_is_wider_than_a_telephone_or_a_desk() {
    let Some(browser) = browser() else { return };
    let pages = [
        ("ladder.html", plumb_report::html::report(&fixture::ladder())),
        ("tables.html", plumb_report::html::report(&fixture::tables(300))),
        ("networks.html", plumb_report::html::report(&crate::network::networks())),
        ("hosts.html", plumb_report::html::report(&crate::hosts::hosts())),
    ];
    for (name, page) in pages {
        for width in [390, 1280] {
            let seen = measured(&browser, name, &page, width);
            let height = seen.strip_prefix("0 over, too wide: ; high: ");
            let height = height.and_then(|height| height.parse::<u32>().ok());
            assert!(height.is_some(), "{name} at {width}: {seen}");
            if (name, width) == ("ladder.html", 1280) {
                assert!(height <= Some(5_000), "the ladder is {height:?} px high");
            }
        }
    }
}
