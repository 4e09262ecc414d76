<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>@yield('title')</title><link rel="stylesheet" href="/style.css"></head>
<body>
@if (session('status'))<p class="status">{{ session('status') }}</p>@endif
@yield('content')
</body>
</html>
