use crate::markup::escaped;

/// A chart's size and the margins around its field.
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
    /// Where a share of the field's width lies.
    pub(crate) fn x(&self, share: f64) -> f64 {
        self.left + share * (self.edge() - self.left)
    }

    /// Where a share of the field's height lies, counted from below.
    pub(crate) fn y(&self, share: f64) -> f64 {
        self.base() - share * (self.base() - self.top)
    }

    /// The field's lower end.
    pub(crate) fn base(&self) -> f64 {
        self.height - self.bottom
    }

    /// The field's right end.
    pub(crate) fn edge(&self) -> f64 {
        self.width - self.right
    }

    /// A line across the field, with its label beside the left axis.
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

    /// A mark on the lower axis, with its label below.
    pub(crate) fn mark(&self, out: &mut String, share: f64, label: &str) {
        let (x, base) = (self.x(share), self.base());
        out.push_str(&format!(r#"<path class="axis" d="M{x:.1} {base}v4"/>"#));
        self.below(out, x, label);
    }

    /// A label below the lower axis.
    pub(crate) fn below(&self, out: &mut String, x: f64, label: &str) {
        out.push_str(&format!(
            r#"<text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            self.base() + 17.0,
            escaped(label)
        ));
    }

    /// The lower axis, with its caption at the chart's lower end.
    pub(crate) fn foot(&self, out: &mut String, caption: &str) {
        let (base, edge) = (self.base(), self.edge());
        out.push_str(&format!(
            r#"<path class="axis" d="M{} {base}H{edge}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            self.left,
            (self.left + edge) / 2.0,
            self.height - 6.0,
            escaped(caption)
        ));
    }

    /// A caption along the left axis, or along the right end.
    pub(crate) fn beside(&self, out: &mut String, side: Side, caption: &str) {
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
