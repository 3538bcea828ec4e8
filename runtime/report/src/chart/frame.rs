use crate::markup::escaped;

/// Size of a chart and margins around the plot area.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Frame {
    /// Returns the position for a fraction of the plot area's width.
    pub(crate) fn x(&self, share: f64) -> f64 {
        self.left + share * (self.edge() - self.left)
    }

    /// Returns the position for a fraction of the plot area's height, starting at the bottom.
    pub(crate) fn y(&self, share: f64) -> f64 {
        self.base() - share * (self.base() - self.top)
    }

    /// Returns the lower edge of the plot area.
    pub(crate) fn base(&self) -> f64 {
        self.height - self.bottom
    }

    /// Returns the right edge of the plot area.
    pub(crate) fn edge(&self) -> f64 {
        self.width - self.right
    }

    /// Draws a horizontal line with a label at the left axis.
    pub(crate) fn level(&self, out: &mut String, share: f64, label: &str) {
        let y = self.y(share);
        out.push_str(&format!(
            r#"<path class="grid" d="M{} {y:.1}H{}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            self.left,
            self.edge(),
            self.left - 7.0,
            y + 4.0,
            escaped(label)
        ));
    }

    /// Draws a tick with a label at the lower axis.
    pub(crate) fn mark(&self, out: &mut String, share: f64, label: &str) {
        let x = self.x(share);
        let base = self.base();
        out.push_str(&format!(r#"<path class="axis" d="M{x:.1} {base}v4"/>"#));
        self.below(out, x, label);
    }

    /// Draws a label below the lower axis.
    pub(crate) fn below(&self, out: &mut String, x: f64, label: &str) {
        out.push_str(&format!(
            r#"<text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            self.base() + 17.0,
            escaped(label)
        ));
    }

    /// Draws the lower axis with a caption.
    pub(crate) fn foot(&self, out: &mut String, caption: &str) {
        let base = self.base();
        let edge = self.edge();
        out.push_str(&format!(
            r#"<path class="axis" d="M{} {base}H{edge}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            self.left,
            (self.left + edge) / 2.0,
            self.height - 6.0,
            escaped(caption)
        ));
    }

    /// Draws a caption next to the left or right axis.
    pub(crate) fn axis_caption(&self, out: &mut String, side: Side, caption: &str) {
        let (x, turn) = match side {
            Side::Left => (18.0, -90),
            Side::Right => (self.width - 18.0, 90),
        };
        out.push_str(&format!(
            r#"<text class="tick" transform="translate({x:.1} {:.1}) rotate({turn})" text-anchor="middle">{}</text>"#,
            (self.top + self.base()) / 2.0,
            escaped(caption)
        ));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}
