//! The page that plumb's server has: 10,000 bytes of HTML and 12 images of 40,000 bytes together; and files by themselves.
//!
//! The same bytes in every process, so that a client knows what has to come. Image bytes are random, as
//! compressed pictures are. Left out: real pictures.

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

#[cfg(test)]
mod tests {
    use super::super::{OBJECTS_MAX, links};
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
        let found = links::images(&STANDARD.objects[0].body, "/", 100);
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
}
