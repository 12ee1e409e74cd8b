"""What each view of the plots shows, as pure functions of the `RunState`: a request for the plotter, words and a table.

`views.VIEWS` lists them; one module per view. Nothing here holds a fact: what is looked at and how stands in a `look.Look`.
"""
