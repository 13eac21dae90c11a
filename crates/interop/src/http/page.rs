//! The page that plumb's server has: 10,000 bytes of HTML and 12 images of 40,000 bytes together; files by themselves; and
//! which images a page names.
//!
//! The same bytes in every process, so that a client knows what has to come. Image bytes are random, as compressed
//! pictures are. Images of a page are found by a scan for `<img … src="…">`, of the same server only: what scripts and
//! style sheets would load is not found.

use std::fmt::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;
use plumb_base::seed::Seed;
use rand::Rng as _;

/// Bytes of the page.
const PAGE_BYTES: usize = 10_000;
/// Bytes of each image: from a rule between paragraphs to a picture.
const IMAGE_BYTES: [usize; 12] =
    [680, 1_067, 1_467, 1_867, 2_267, 2_667, 3_067, 3_600, 4_133, 5_200, 6_267, 7_718];
/// The words between the images.
const FILLER: &str = "What does it cost one program to talk to another? ";

/// One object of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageObject {
    /// Its path, which begins with a slash.
    pub path: String,
    /// Its media type.
    pub media_type: &'static str,
    /// Its bytes.
    pub body: Bytes,
}

/// A page with its images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebPage {
    /// The page itself first.
    pub objects: Vec<PageObject>,
}

/// What the path of a file by itself begins with; its size follows.
pub const FILE_PATH: &str = "/file/";
/// Bytes of the largest.
pub const FILE_BYTES_MAX: usize = 1 << 20;

static FILE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut body = vec![0; FILE_BYTES_MAX];
    Seed(0).stream("http file").fill_bytes(&mut body);
    Bytes::from(body)
});

/// The page that plumb's server has.
pub static STANDARD: LazyLock<WebPage> = LazyLock::new(WebPage::standard);

impl WebPage {
    fn standard() -> Self {
        let mut random = Seed(0).stream("http page");
        let images = IMAGE_BYTES.iter().enumerate().map(|(index, bytes)| {
            let mut body = vec![0; *bytes];
            random.fill_bytes(&mut body);
            let path = format!("/image/{:02}.png", index + 1);
            PageObject { path, media_type: "image/png", body: Bytes::from(body) }
        });
        let images: Vec<PageObject> = images.collect();
        let mut objects = vec![PageObject {
            path: "/".to_owned(),
            media_type: "text/html; charset=utf-8",
            body: Bytes::from(html(&images)),
        }];
        objects.extend(images);
        Self { objects }
    }

    /// Media type and bytes of a path: an object of the page, or a file of so many bytes, `/file/8192`.
    pub fn content(&self, path: &str) -> Option<(&'static str, Bytes)> {
        if let Some(bytes) = path.strip_prefix(FILE_PATH) {
            let bytes: usize = bytes.parse().ok().filter(|bytes| *bytes <= FILE.len())?;
            return Some(("application/octet-stream", FILE.slice(..bytes)));
        }
        let object = self.objects.iter().find(|object| object.path == path)?;
        Some((object.media_type, object.body.clone()))
    }

    /// Bytes of all bodies.
    pub fn bytes(&self) -> usize {
        self.objects.iter().map(|object| object.body.len()).sum()
    }
}

/// Exactly [`PAGE_BYTES`] of HTML that names the images.
fn html(images: &[PageObject]) -> String {
    const END: &str = "</p></body></html>\n";
    let mut text =
        "<!doctype html><html lang=\"en\"><head><title>plumb</title></head><body>".to_owned();
    let room = PAGE_BYTES - END.len();
    for (index, image) in images.iter().enumerate() {
        // Spread over the page, so that a reader finds them while it comes in.
        let until = room * index / images.len();
        while text.len() + FILLER.len() < until {
            text.push_str(FILLER);
        }
        write!(text, "<p><img src=\"{}\" alt=\"\"></p>", image.path).expect("a string grows");
    }
    text.push_str("<p>");
    let fill: String = FILLER.chars().cycle().take(room - text.len()).collect();
    text.push_str(&fill);
    text.push_str(END);
    text
}

/// Longest path that is taken.
const PATH_BYTES_MAX: usize = 1_024;

/// Paths of the images that the page at `base` names, each once, at most so many.
pub fn image_paths(html: &[u8], base: &str, most: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = html;
    while found.len() < most {
        let Some(at) = position(rest, b"<img") else { break };
        rest = &rest[at + 4..];
        let end = rest.iter().position(|byte| *byte == b'>').unwrap_or(rest.len());
        let path = source(&rest[..end]).and_then(|source| resolve(source, base));
        if let Some(path) = path.filter(|path| !found.contains(path)) {
            found.push(path);
        }
        rest = &rest[end..];
    }
    found
}

fn position(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window.eq_ignore_ascii_case(word))
}

/// The value of `src` in a tag.
fn source(tag: &[u8]) -> Option<&str> {
    let mut from = 0;
    loop {
        let at = from + position(&tag[from..], b"src")?;
        let before = at.checked_sub(1).map(|before| tag[before]);
        let value = tag[at + 3..].trim_ascii_start();
        match value.split_first() {
            Some((b'=', value)) if before.is_some_and(|b| b.is_ascii_whitespace()) => {
                let value = value.trim_ascii_start();
                let (quote, value) = match value.split_first() {
                    Some((quote @ (b'"' | b'\''), value)) => (Some(*quote), value),
                    _ => (None, value),
                };
                let is_end = |b: &u8| quote.map_or(b.is_ascii_whitespace(), |quote| *b == quote);
                let end = value.iter().position(is_end).unwrap_or(value.len());
                return std::str::from_utf8(&value[..end]).ok();
            }
            _ => from = at + 3,
        }
    }
}

/// The path on the same server, where it is one.
fn resolve(source: &str, base: &str) -> Option<String> {
    let source = source.split('#').next().unwrap_or_default().trim();
    let is_plain = source.bytes().all(|byte| byte.is_ascii_graphic());
    if source.is_empty() || !is_plain || source.len() > PATH_BYTES_MAX || source.starts_with("//") {
        return None;
    }
    // A colon before the first slash is a scheme: another server, or data in the page itself.
    let first = source.split('/').next().unwrap_or_default();
    if first.contains(':') {
        return None;
    }
    if source.starts_with('/') {
        return Some(source.to_owned());
    }
    let base = base.split('?').next().unwrap_or("/");
    let directory = base.rfind('/').map_or("/", |at| &base[..=at]);
    Some(format!("{directory}{source}"))
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use rand::RngExt as _;

    use super::super::OBJECTS_MAX;
    use super::*;

    #[test]
    fn the_page_has_twelve_images_of_forty_thousand_bytes() {
        assert_eq!(STANDARD.objects.len(), OBJECTS_MAX);
        assert_eq!(STANDARD.objects[0].body.len(), PAGE_BYTES);
        assert_eq!(STANDARD.bytes(), PAGE_BYTES + 40_000);
    }

    #[test]
    fn a_file_has_as_many_bytes_as_its_path_says() {
        assert_eq!(STANDARD.content("/file/3072").unwrap().1.len(), 3_072);
        for path in ["/file/1048577", "/file/-1", "/file/", "/file/99999999999999999999"] {
            assert_eq!(STANDARD.content(path), None, "{path}");
        }
    }

    #[test]
    fn the_page_names_all_of_its_images() {
        let found = image_paths(&STANDARD.objects[0].body, "/", 100);
        let paths: Vec<&str> = STANDARD.objects[1..].iter().map(|o| o.path.as_str()).collect();
        assert_eq!(found, paths);
    }

    #[test]
    fn the_page_is_the_same_in_every_process() {
        // Two hosts with the same plumb must agree on every byte.
        let all: Vec<u8> = STANDARD.objects.iter().flat_map(|o| o.body.to_vec()).collect();
        let fingerprint = plumb_remote::secure::Fingerprint::of(&all).to_string();
        assert_eq!(fingerprint, plumb_remote::secure::Fingerprint::of(&all).to_string());
        assert_eq!(WebPage::standard(), *STANDARD);
    }

    #[test]
    fn images_of_the_same_server_are_found_once_each() {
        let html = br#"<IMG alt=x SRC="/a.png"><img data-src="no.png" src='b.png?x=1#y'><img src=c.png>
            <img src="https://elsewhere/d.png"><img src="//elsewhere/e.png"><img src="data:image/png,x">
            <img src="/a.png"><img><img src=><a src="/f.png"><img src = "/g.png""#;
        let found = image_paths(html, "/dir/page.html?q=/z/", 100);
        assert_eq!(found, ["/a.png", "/dir/b.png?x=1", "/dir/c.png", "/g.png"]);
        assert_eq!(image_paths(html, "/", 2), ["/a.png", "/b.png?x=1"]);
    }

    #[test]
    fn a_path_that_would_break_a_request_is_passed_over() {
        let html = b"<img src='/a b'><img src='/a\r\nHost: x'><img src='/\xff'><img src='/ok'>";
        assert_eq!(image_paths(html, "/", 100), ["/ok"]);
    }

    #[test]
    fn no_bytes_make_the_scan_panic() {
        let seed = Seed(0x6c69_6e6b);
        println!("seed {seed:?}");
        let mut random = seed.stream("links");
        let pieces: [&[u8]; 10] =
            [b"<img", b" src", b"=", b"\"", b"'", b">", b"/x", b" ", b"\xc3", b"srcsrc"];
        for _ in 0..50_000 {
            let count = random.random_range(0..20);
            let html: Vec<u8> = (0..count)
                .flat_map(|_| pieces[random.random_range(0..pieces.len())].to_vec())
                .collect();
            for path in image_paths(&html, "/", 5) {
                assert!(path.starts_with('/'), "{path}");
            }
        }
    }
}
