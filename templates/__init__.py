"""What the report is made from: Jinja2 templates, the style sheet, the schema."""
