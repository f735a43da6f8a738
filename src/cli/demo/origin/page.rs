//! Generates the demo's page, without external resources, and its images.

use std::fmt::Write;

/// Number of images on the page: enough for several streams at a time, and full rows of 8 and of 6.
pub(super) const IMAGE_COUNT: u32 = 24;

/// HTML of the page, which asks the browser by which protocol it and its images came.
pub(super) fn index_page() -> String {
    let images = (0..IMAGE_COUNT).fold(String::new(), |mut images, number| {
        // Writing to a String cannot fail.
        let _ = write!(images, r#"<img src="/image/{number}.svg" width="96" height="96" alt="">"#);
        images
    });
    include_str!("page.html").replace("<!-- images -->", &images)
}

/// Image number `number`: a disc of its colour.
pub(super) fn image_svg(number: u32) -> String {
    let hue = number.wrapping_mul(47) % 360;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 96">
<rect width="96" height="96" fill="hsl({hue} 45% 32%)"/><circle cx="48" cy="48" r="32" fill="hsl({hue} 65% 60%)"/></svg>"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_external_resources() {
        let page = index_page();
        assert_eq!(page.matches("<img").count(), 24);
        assert!(page.contains("nextHopProtocol"));
        assert!(!page.contains("://"), "a demo without a network shows everything");
    }

    #[test]
    fn images_differ_and_stay_the_same() {
        assert_eq!(image_svg(3), image_svg(3));
        assert_ne!(image_svg(3), image_svg(4));
        assert!(image_svg(u32::MAX).ends_with("</svg>"));
    }
}
