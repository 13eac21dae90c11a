//! The pictures of the guide are figures of pages: `<!-- picture: FIGURE | COMMAND -->` above an image names the command that
//! makes the page, and the title of the figure on it. `make gallery` writes the files.

use std::path::Path;

use plumb_report::figure::svg::PALETTE_CSS;

use crate::guide::repository;
use crate::home::TestHome;

/// The most that a picture may have.
const BYTES_MAX: usize = 50_000;

/// The figure of a page as a file of its own, with the palette of both schemes.
fn picture(page: &str, figure: &str) -> String {
    let title = page.find(&format!("<title>{figure}</title>")).expect(figure);
    let from = page[..title].rfind("<svg ").unwrap();
    let svg = &page[from..];
    let svg = &svg[..svg.find("</svg>").unwrap()];
    let (head, body) = svg.split_once('>').unwrap();
    format!("{head}><style>{PALETTE_CSS}svg{{background:var(--page)}}</style>{body}</svg>\n")
}

/// Every picture that a page of the guide names: figure, command and file.
fn named(page: &str) -> Vec<(&str, &str, &str)> {
    let mut lines = page.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let comment = line.strip_prefix("<!-- picture: ").and_then(|it| it.strip_suffix(" -->"));
        let Some((figure, command)) = comment.and_then(|it| it.split_once(" | ")) else { continue };
        let image = lines.next().and_then(|it| it.strip_suffix(')')).unwrap();
        found.push((figure, command, image.rsplit_once('(').unwrap().1));
    }
    found
}

#[test]
fn the_pictures_of_the_guide_are_what_their_commands_draw() {
    let guide = repository().join("docs/guide");
    let place = TestHome::new();
    std::os::unix::fs::symlink(repository().join("scenarios"), place.path("scenarios")).unwrap();
    let writes = std::env::var_os("PLUMB_WRITE_GALLERY").is_some();
    let mut drawn = Vec::new();
    for entry in std::fs::read_dir(&guide).unwrap() {
        let path = entry.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        for (figure, command, file) in named(&page) {
            let arguments = command.strip_prefix("plumb ").unwrap();
            place.assert_success(&*format!("{arguments} --no-store -o page.html"));
            let html = std::fs::read_to_string(place.path("page.html")).unwrap();
            let picture = picture(&html, figure);
            assert!(picture.len() <= BYTES_MAX, "{file} has {} bytes", picture.len());
            if writes {
                std::fs::write(guide.join(file), &picture).unwrap();
            }
            let stored = std::fs::read_to_string(guide.join(file)).unwrap_or_default();
            assert!(stored == picture, "{file} is not what '{command}' draws: make gallery");
            drawn.push(Path::new(file).file_name().unwrap().to_owned());
        }
    }
    for entry in std::fs::read_dir(guide.join("pictures")).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(drawn.contains(&name), "no command draws {}", name.display());
    }
}
